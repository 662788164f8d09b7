package rollout

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// Status is the rollout status of one object; its JSON form is the output of -o json.
type Status struct {
	// Kind and Name identify the object.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Enforcement and Rollout are its annotations. Without an annotation, Enforcement is Deny.
	Enforcement string `json:"enforcement"`
	Rollout     string `json:"rollout,omitempty"`
	// Since is the time of the annotation's last write, if recorded.
	Since *metav1.Time `json:"since,omitempty"`
	// WouldReject and WouldChange count requests since the server started; absent if the user cannot
	// read its metrics. Requests of a binding count for its policy.
	WouldReject *int64 `json:"wouldReject,omitempty"`
	WouldChange *int64 `json:"wouldChange,omitempty"`
	// Namespaces count the requests in the traces that the server keeps.
	Namespaces []Namespace `json:"namespaces,omitempty"`
}

// Namespace counts the requests of one namespace.
type Namespace struct {
	Namespace   string `json:"namespace"`
	WouldReject int    `json:"wouldReject"`
	WouldChange int    `json:"wouldChange"`
	// Example is a message, or a change, and Trace the ID of its trace.
	Example string `json:"example,omitempty"`
	Trace   string `json:"trace,omitempty"`
}

// Counts are the numbers of requests that warn-only and audit-only registrations would have rejected or
// changed. The key has the label name for a webhook or policy, the label's value, and the effect.
type Counts map[[3]string]int64

// ReadCounts parses the metrics of a server, in the text format.
func ReadCounts(metrics []byte) (Counts, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return nil, err
	}
	counts := Counts{}
	for family, label := range map[string]string{"gatehouse_admission_webhook_spared_requests_total": "name", "gatehouse_admission_policy_spared_requests_total": "policy"} {
		for _, m := range families[family].GetMetric() {
			counts[[3]string{label, labelOf(m, label), labelOf(m, "would")}] += int64(m.GetCounter().GetValue())
		}
	}
	return counts, nil
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// StatusOf returns the status of a registration from its annotations, the counts of the metrics, nil if
// the user cannot read them, and the traces of a server.
func StatusOf(u *unstructured.Unstructured, spared Counts, traces []*v1alpha1.AdmissionTrace) Status {
	annotations := u.GetAnnotations()
	s := Status{
		Kind: u.GetKind(), Name: u.GetName(), Rollout: annotations[registration.RolloutAnnotation],
		Enforcement: cmp.Or(annotations[registration.EnforcementAnnotation], string(registration.ModeDeny)),
	}
	if at := lint.EnforcedSince(u); !at.IsZero() {
		s.Since = &metav1.Time{Time: at}
	}
	label, names := "policy", []string{u.GetName()}
	if policy, _, _ := unstructured.NestedString(u.Object, "spec", "policyName"); policy != "" {
		names = []string{policy}
	}
	if entries, err := registration.Entries(u); err == nil && len(entries) > 0 && entries[0].Name != "" {
		label, names = "name", nil
		for _, e := range entries {
			names = append(names, e.Name)
		}
	}
	if spared != nil {
		var reject, change int64
		for _, name := range names {
			reject += spared[[3]string{label, name, "reject"}]
			change += spared[[3]string{label, name, "change"}]
		}
		s.WouldReject, s.WouldChange = &reject, &change
	}
	s.Namespaces = sparedByNamespace(u, traces)
	return s
}

// sparedByNamespace counts, by namespace, the effects that the traces show for an object that is not
// enforced.
func sparedByNamespace(u *unstructured.Unstructured, traces []*v1alpha1.AdmissionTrace) []Namespace {
	found := map[string]*Namespace{}
	for _, t := range traces {
		n := found[t.Request.Namespace]
		if n == nil {
			n = &Namespace{Namespace: t.Request.Namespace}
		}
		if n.count(t, t.SparedBy(u.GetKind(), u.GetName())) {
			found[n.Namespace] = n
		}
	}
	var list []Namespace
	for _, name := range slices.Sorted(maps.Keys(found)) {
		list = append(list, *found[name])
	}
	slices.SortStableFunc(list, func(a, b Namespace) int { return cmp.Compare(b.WouldReject, a.WouldReject) })
	return list
}

// Alike groups namespaces whose examples differ in the name of the namespace only. The first namespace of a group has
// the most requests.
func Alike(list []Namespace) (groups [][]Namespace) {
	places := map[string]int{}
	for _, n := range list {
		key := n.Example
		if n.Namespace != "" {
			key = strings.ReplaceAll(key, n.Namespace, "")
		}
		i, known := places[key]
		if !known {
			i = len(groups)
			places[key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], n)
	}
	return groups
}

// count adds the effects that an object would have had on the request of a trace, and reports whether
// there are any. A request is counted once. The example is a rejection, if there is one.
func (n *Namespace) count(t *v1alpha1.AdmissionTrace, acts iter.Seq[trace.Act]) bool {
	reject, change := false, false
	for act := range acts {
		example := act.Message
		if act.Deed == trace.WouldReject {
			reject = true
		} else {
			change, example = true, "would change "+strings.Join(act.Fields(), ", ")
		}
		if n.Trace == "" || act.Deed == trace.WouldReject && n.WouldReject == 0 {
			n.Example, n.Trace = example, t.ID
		}
	}
	if reject {
		n.WouldReject++
	}
	if change {
		n.WouldChange++
	}
	return reject || change
}

// Soft reports whether a registration has the annotation about its enforcement, whatever its value.
func Soft(u *unstructured.Unstructured) bool {
	_, soft := u.GetAnnotations()[registration.EnforcementAnnotation]
	return soft
}
