package lint

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var bindingWithoutPolicy = &Rule{
	ID: "binding-without-policy", Level: Warning,
	Title:  "A binding names a policy that does not exist",
	Why:    "The binding does nothing, and nothing says so.",
	Fix:    "Correct policyName, or create the policy. Among files, the rule is silent if they have no policy at all, or if an API server would refuse that one.",
	Fails:  strings.Replace(policy("validations:\n- {expression: \"true\"}\n"), "policyName: images", "policyName: image", 1),
	Passes: policy("validations:\n- {expression: \"!has(object.spec.hostNetwork) || !object.spec.hostNetwork\"}\n"),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			if e.Binding == nil || p.Hidden[e.Source.Descriptor().Bound] != "" || p.Snapshot.Bound(e) != nil {
				return
			}
			where, bound := at(e.Entry, "policyName"), e.Source.Descriptor().Bound
			_, refused := p.Written[Object{Kind: bound.String(), Name: e.Binding.PolicyName}]
			switch {
			case refused:
				// Rules invalid and expression-invalid report the policy.
			case !p.Partial:
				p.finds(where, "the binding %s names the %s %q, which does not exist", e, bound, e.Binding.PolicyName)
			case len(p.Snapshot.Entries(bound)) == 0:
				p.misses("%s %q, which a binding names, is in no file", bound, e.Binding.PolicyName)
			default:
				p.finds(where, "the binding %s names the %s %q; the files have other policies, and not this one", e, bound, e.Binding.PolicyName)
			}
		})
	},
}
