package lint

import (
	"slices"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var warnBindingRejects = &Rule{
	ID: "warn-binding-rejects", Level: Note,
	Title: "A binding that only warns or audits can reject requests",
	Why: "The actions of a binding are for violations. When params are missing, or an audit annotation fails, the failure policy of the policy " +
		"decides, whatever the actions are: with Fail, the request is rejected.",
	Fix:    "Set failurePolicy of the policy to Ignore while it is tried out.",
	Fails:  strings.Replace(withParams, "[Deny]", "[Warn]", 1),
	Passes: strings.Replace(strings.Replace(withParams, "[Deny]", "[Warn]", 1), "spec:\n  paramKind", "spec:\n  failurePolicy: Ignore\n  paramKind", 1),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			if e.Source != registration.ValidatingBindings || slices.Contains(e.Binding.Actions, v1.Deny) {
				return
			}
			policy := p.Snapshot.Bound(e)
			if policy == nil || !failsClosed(policy) || policy.Entry.Policy.ParamKind == nil && len(policy.Entry.Policy.AuditAnnotations) == 0 {
				return
			}
			p.finds(at(e.Entry, "validationActions"), "the binding %s only has the actions %v, and the policy %s rejects requests all the same when its params or audit annotations fail",
				e, e.Binding.Actions, policy)
		})
	},
}
