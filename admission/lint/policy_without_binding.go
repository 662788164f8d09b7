package lint

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var policyWithoutBinding = &Rule{
	ID: "policy-without-binding", Level: Warning,
	Title:  "A policy has no binding",
	Why:    "A policy is in force only where a binding says so. Without one it does nothing.",
	Fix:    "Create a binding with this policyName, or delete the policy.",
	Fails:  before(policy("validations:\n- {expression: \"object.spec.hostNetwork != true\"}\n")),
	Passes: policy("validations:\n- {expression: \"!has(object.spec.hostNetwork) || !object.spec.hostNetwork\"}\n"),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			if e.Policy == nil || e.Bindings != nil {
				return
			}
			if why := p.Hidden[e.Source.Descriptor().Bindings]; why != "" {
				return
			}
			p.finds(place{objectOf(e.Entry), []any{"metadata", "name"}}, "the policy %s has no binding: it does nothing", e)
		})
	},
}

// before is the first document of an example.
func before(example string) string {
	first, _, _ := strings.Cut(example, "---\n")
	return first
}
