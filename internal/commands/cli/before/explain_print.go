package before

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// printExplanations writes explanations for programs: a single explanation as it is, several as a List. The
// credentials of the explained objects are redacted.
func printExplanations(out io.Writer, format string, found []*v1alpha1.AdmissionExplanation) error {
	found = slices.Clone(found)
	for i, e := range found {
		if object := e.Spec.Object; object != nil {
			shown := *e
			raw, _ := credentials.Shown.Value("", object.Raw)
			shown.Spec.Object = &runtime.RawExtension{Raw: raw}
			found[i] = &shown
		}
	}
	var value any = map[string]any{"apiVersion": "v1", "kind": "List", "items": found}
	if len(found) == 1 {
		value = found[0]
	}
	return command.PrintAs(out, format, value)
}

// viewOf returns explanations as a document for people. makers names the origin of each request, such as a
// controller.
func viewOf(found []*v1alpha1.AdmissionExplanation, makers []string, all bool) *view.Document {
	list := make([]view.Explained, len(found))
	for i, e := range found {
		list[i] = view.Explained{For: makers[i], Asked: requestTitle(e), Plan: e.Status.Plan, All: all, Error: "the server gave no reason"}
		if e.Status.Error != nil {
			list[i].Error = e.Status.Error.Message
		}
		for _, t := range e.Status.Tried {
			tried := view.Tried{Kind: t.Kind, Name: t.Name, Problems: t.Problems}
			for _, c := range t.Costs {
				tried.Costs = append(tried.Costs, view.Cost{Field: c.Field, WorstCase: c.WorstCase, Limit: c.Limit})
			}
			list[i].Tried = append(list[i].Tried, tried)
		}
	}
	return view.OfPlans(list, view.Links{})
}

// rejected reports whether a request would be rejected, by admission or before.
func rejected(e *v1alpha1.AdmissionExplanation) bool {
	return e.Status.Plan == nil || e.Status.Plan.Verdict() == plan.VerdictRejected
}

// likely reports whether a request would be rejected unless an unknown step changes the object.
func likely(e *v1alpha1.AdmissionExplanation) bool {
	return e.Status.Plan != nil && e.Status.Plan.Verdict() == plan.VerdictLikely
}

// requestTitle is the title of a request without a plan.
func requestTitle(e *v1alpha1.AdmissionExplanation) string {
	r := e.Spec.Resource
	resource := path.Join(r.Group, r.Version) + " " + path.Join(r.Resource, e.Spec.Subresource)
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Spec.Operation, resource, path.Join(e.Spec.Namespace, e.Spec.Name)))
}
