package lint

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var mutatingFailsClosed = &Rule{
	ID: "mutating-fails-closed", Level: Note, Advice: "fail-open-validate-final-state",
	Title: "A mutating webhook fails closed",
	Why: "While the webhook cannot be reached, objects are rejected that need no change. Enforce a requirement with a validating webhook or " +
		"policy, which judges the object as it is stored.",
	Fix:    "Set failurePolicy to Ignore, and reject wrong objects in the validating pass.",
	Fails:  hook(mutating, anyPod+outside+"failurePolicy: Fail\n"),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		p.webhooks(func(e *snapshot.Entry) {
			if mutates(e) && failsClosed(e) && !optsIn(e) {
				p.finds(at(e.Entry, "failurePolicy"), "the mutating webhook %s fails closed: while it cannot be reached, objects are rejected that need no change", e.Name)
			}
		})
	},
}

// optsIn reports whether a webhook is only about objects that ask for it by a label.
func optsIn(e *snapshot.Entry) bool {
	if e.ObjectSelector == nil {
		return false
	}
	requirements, _ := e.ObjectSelector.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		return slices.Contains([]selection.Operator{selection.In, selection.Equals, selection.DoubleEquals, selection.Exists}, r.Operator())
	})
}
