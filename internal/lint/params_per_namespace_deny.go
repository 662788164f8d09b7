package lint

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var paramsPerNamespaceDeny = &Rule{
	ID: "params-per-namespace-deny", Level: Warning,
	Reads: []Part{Kinds},
	Title: "A binding denies what is in a namespace without params",
	Why: "The params are looked for in the namespace of each request. When a namespace is deleted, its params may go first; from then on, updates of everything else " +
		"there are rejected, also those that remove finalizers, and the namespace is never gone.",
	Fix:    "Set parameterNotFoundAction to Allow, or keep the params in a namespace of their own, with paramRef.namespace.",
	Fails:  strings.Replace(withParams, "namespace: policies, ", "", 1),
	Passes: withParams,
	check: func(p *pass) {
		if p.Params == nil {
			return
		}
		p.entries(func(e *snapshot.Entry) {
			if e.Binding == nil || e.Binding.ParamRef == nil || !e.Binding.ParamRef.DenyMissing || e.Binding.ParamRef.Namespace != "" {
				return
			}
			policy := p.Snapshot.Bound(e)
			if policy == nil || policy.Entry.Policy.ParamKind == nil || !failsClosed(policy) {
				return
			}
			if namespaced, _, err := p.Params.Scope(p.ctx, *policy.Entry.Policy.ParamKind); err == nil && namespaced {
				p.findsCause(p.rule.Level, at(e.Entry, "paramRef", "parameterNotFoundAction"), policy.String(), "the binding "+e.String(), "the binding %s rejects all writes in a namespace whose params are gone, also while the namespace is deleted", e)
			}
		})
	},
}
