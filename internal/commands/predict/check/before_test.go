package check

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
)

func written(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// The objects of the version before are created before registrations that would reject them, and after registrations
// that change them.
func TestWhatRefuses(t *testing.T) {
	for _, tc := range []struct {
		kind string
		want bool
	}{
		{"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration", true},
		{"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy", true},
		{"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding", true},
		{"admissionregistration.k8s.io/v1 MutatingWebhookConfiguration", false},
		{"admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding", false},
		{"example.com/v1 ValidatingWebhookConfiguration", false},
		{"v1 ResourceQuota", false},
	} {
		u := &unstructured.Unstructured{}
		version, kind, _ := strings.Cut(tc.kind, " ")
		u.SetAPIVersion(version)
		u.SetKind(kind)
		if got := refuses(u); got != tc.want {
			t.Errorf("%s: %t", tc.kind, got)
		}
	}
}

// An object counts as changed if its written content changes, not its status, its server-side counters, or the way it
// was applied.
func TestAlike(t *testing.T) {
	const before = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"1","annotations":{"x":"y"}},"data":{"a":"1"}}`
	for _, tc := range []struct {
		name, after string
		want        bool
	}{
		{"the same", before, true},
		{"another revision", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"2","annotations":{"x":"y"}},"data":{"a":"1"}}`, true},
		{"a status", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"x":"y"}},"data":{"a":"1"},"status":{"a":1}}`, true},
		{"applied in another way", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"x":"y","kubectl.kubernetes.io/last-applied-configuration":"{}"}},"data":{"a":"1"}}`, true},
		{"another value", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"x":"y"}},"data":{"a":"2"}}`, false},
		{"another annotation", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"x":"z"}},"data":{"a":"1"}}`, false},
		{"no object", `[]`, false},
	} {
		if got := alike([]byte(before), []byte(tc.after)); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// operation returns the effect on the object in the cluster.
func TestOperations(t *testing.T) {
	body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1"}}`)
	taken := &answer{Answer: &stage.Answer{Code: 200, Body: body}}
	for _, tc := range []struct {
		name string
		task task
		want string
	}{
		{"not sent", task{}, ""},
		{"new", task{answer: taken}, created},
		{"there before", task{answer: taken, stored: true, current: []byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"2"}}`)}, updated},
		{"there before and the same", task{answer: taken, stored: true, current: body}, unchanged},
		{"not sent, since nothing changes", task{answer: taken, stored: true, unchanged: true}, unchanged},
		{"gone", task{answer: taken, stored: true, removed: true}, deleted},
	} {
		if got := tc.task.operation(); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Objects missing from the files are deleted in the reverse order: dependent objects first, and owners last. Objects
// that are still in the files, in any version, stay.
func TestWhatIsGone(t *testing.T) {
	kinds := offline.Builtin()
	one := func(text string, there bool) *task {
		u := written(t, text)
		return &task{sent: u, kind: kinds.Of(u.GroupVersionKind()), phase: order.PhaseOf(u, nil), name: u.GetName(), there: there}
	}
	r := &run{Options: Options{Namespace: "default"}}
	r.old = []*task{
		one("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", true),
		one("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: as.example.com}}", true),
		one("{apiVersion: v1, kind: LimitRange, metadata: {name: limits, namespace: shop}}", true),
		one("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}}", true),
		one("{apiVersion: v1, kind: ConfigMap, metadata: {name: never-made}}", false),
		one("{apiVersion: v1, kind: ConfigMap, metadata: {name: gone, namespace: shop}}", true),
	}
	r.tasks = []*task{one("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, namespace: default}}", false)}
	var got []string
	for _, g := range r.deletions(kinds) {
		got = append(got, g.kind.Kind.Kind+" "+g.name)
	}
	if want := []string{"ConfigMap gone", "LimitRange limits", "CustomResourceDefinition as.example.com", "Namespace shop"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Registrations, bindings, quotas and limits affect admission and are therefore deleted first.
func TestWhatJudges(t *testing.T) {
	for kind, want := range map[schema.GroupVersionKind]bool{
		{Version: "v1", Kind: "ResourceQuota"}: true, {Version: "v1", Kind: "LimitRange"}: true, {Version: "v1", Kind: "ConfigMap"}: false,
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}: true,
	} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		if got := (&task{kind: &offline.Kind{Kind: kind}, phase: order.PhaseOf(u, nil)}).judges(); got != want {
			t.Errorf("%v: %t", kind, got)
		}
	}
}
