package rollout

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// S28.8: requests that a warn-only or audit-only webhook would have rejected or changed are counted
// by namespace, each once, with a trace of one: of a rejection, if there is one. An ignored failure
// is neither.
func TestRolloutCountsWhatWouldHaveHappened(t *testing.T) {
	own := trace.EntryRecord{Kind: "MutatingWebhookConfiguration", Configuration: "own", Name: "hook"}
	soft := &trace.Enforcement{Mode: "Audit"}
	of := func(id, namespace string, calls ...trace.CallRecord) *v1alpha1.AdmissionTrace {
		for i := range calls {
			calls[i].Webhook, calls[i].Enforcement = own, soft
		}
		return &v1alpha1.AdmissionTrace{Record: trace.Record{ID: id, Request: trace.RequestRecord{Namespace: namespace}, Steps: []trace.StepRecord{{Calls: calls}}}}
	}
	change := trace.CallRecord{Verdict: "allowed", WouldPatch: []trace.PatchOperation{{Op: "test", Path: "/x"}, {Op: "add", Path: "/a"}, {Op: "add", Path: "/b/-", Field: "b[]"}, {Op: "add", Path: "/a"}}}
	reject := trace.CallRecord{Verdict: "denied", Error: "no"}
	u := &unstructured.Unstructured{Object: map[string]any{"kind": own.Kind, "metadata": map[string]any{"name": "own"}}}
	got := sparedByNamespace(u, []*v1alpha1.AdmissionTrace{
		of("1", "shop", change), of("2", "shop", reject, reject), of("3", "shop", reject), of("4", "park", change, change),
		of("5", "quiet", trace.CallRecord{Verdict: "failed", Error: "away", Ignored: true}), of("6", "none", trace.CallRecord{Verdict: "allowed"}),
	})
	want := []Namespace{
		{Namespace: "shop", WouldReject: 2, WouldChange: 1, Example: "no", Trace: "2"},
		{Namespace: "park", WouldChange: 1, Example: "would change /a, b[]", Trace: "4"},
	}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Namespaces with the same example form a group, whatever their names.
func TestNamespacesAreGrouped(t *testing.T) {
	var got []string
	for _, group := range Alike([]Namespace{
		{Namespace: "a", Example: "no owner"}, {Namespace: "b", Example: "b has no owner"}, {Namespace: "c", Example: "no owner"},
		{Namespace: "d", Example: "d has no owner"}, {Example: "no owner"},
	}) {
		names := ""
		for _, n := range group {
			names += n.Namespace + "."
		}
		got = append(got, names)
	}
	if want := []string{"a.c..", "b.d."}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
