package lint

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var bindingWithoutPolicy = &Rule{
	ID: "binding-without-policy", Level: Warning,
	Title:  "A binding names a policy that does not exist",
	Why:    "The binding does nothing, and nothing says so.",
	Fix:    "Correct policyName, or create the policy.",
	Fails:  strings.Replace(policy("validations:\n- {expression: \"true\"}\n"), "policyName: images", "policyName: image", 1),
	Passes: policy("validations:\n- {expression: \"!has(object.spec.hostNetwork) || !object.spec.hostNetwork\"}\n"),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			if e.Binding == nil || p.Hidden[e.Source.Descriptor().Bound] != "" || p.Snapshot.Bound(e) != nil {
				return
			}
			p.finds(at(e.Entry, "policyName"), "the binding %s names the %s %q, which does not exist", e, e.Source.Descriptor().Bound, e.Binding.PolicyName)
		})
	},
}
