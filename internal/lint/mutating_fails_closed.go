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
	Fix: "Set failurePolicy to Ignore, and reject wrong objects in the validating pass. The rule is not about webhooks for custom resources of a program, nor about those " +
		"into which objects or namespaces opt by a label: these objects need the change.",
	Fails:  hook(mutating, anyPod+outside+"failurePolicy: Fail\n"),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		builtin := p.builtin()
		p.webhooks(func(e *snapshot.Entry) {
			if mutates(e) && failsClosed(e) && !optsIn(e.ObjectSelector) && !optsIn(e.NamespaceSelector) && isAbout(e, builtin) {
				p.findsCause(p.rule.Level, at(e.Entry, "failurePolicy"), e.Configuration, "the webhook "+e.Name, "the mutating webhook %s fails closed: while it cannot be reached, objects are rejected that need no change", e.Name)
			}
		})
	},
}

// optsIn reports whether a selector selects only what has a label for it.
func optsIn(s labels.Selector) bool {
	if s == nil {
		return false
	}
	requirements, _ := s.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		return slices.Contains([]selection.Operator{selection.In, selection.Equals, selection.DoubleEquals, selection.Exists}, r.Operator())
	})
}
