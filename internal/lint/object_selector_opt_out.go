package lint

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var objectSelectorOptOut = &Rule{
	ID: "object-selector-opt-out", Level: Warning,
	Title: "An objectSelector lets users opt out of enforcement",
	Why:   "The author of an object chooses its labels. A label that spares an object from a validating webhook or policy spares whatever a user wants to be spared.",
	Fix:   "Select by namespace, or by who makes the request, in a match condition. An objectSelector is for webhooks that users opt into.",
	Fails: hook(validating, anyPod+outside+`failurePolicy: Fail
objectSelector:
  matchExpressions:
  - {key: policies.example.com/skip, operator: DoesNotExist}
`),
	Passes: hook(validating, anyPod+outside+"failurePolicy: Fail\n"),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			enforces := e.Source == registration.Validating || e.Source == registration.External || e.Source == registration.ValidatingPolicies
			s := e.ObjectSelector
			// Only a selector that matches objects without labels is meant: with it, users can
			// add a label so that their objects are not judged.
			if !enforces || s == nil || s.Empty() || !s.Matches(labels.Set{}) {
				return
			}
			where := at(e.Entry, "objectSelector")
			if e.Entry.Policy != nil {
				where = at(e.Entry, "matchConstraints", "objectSelector")
			}
			p.finds(where, "users can spare their objects from %s by a label: objectSelector %s", e, s)
		})
	},
}
