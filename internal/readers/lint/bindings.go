package lint

import (
	"slices"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
)

var policyWithoutBinding = &Rule{
	ID: "policy-without-binding", Level: Warning,
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if e.Policy == nil || e.Bindings != nil {
			return
		}
		if why := p.Hidden[e.Source.Descriptor().Bindings]; why != "" {
			return
		}
		level := Warning
		if p.Partial {
			if level = Note; p.isLibrary(e.Source) {
				p.misses("bindings of policies are in no file: %s", p.rule.ID)
				return
			}
		}
		if !p.hasMisspelledBinding(e) {
			p.findsAs(level, place{objectOf(e.Entry), []any{"metadata", "name"}}, "the policy %s has no binding: it does nothing", e)
		}
	}),
}

// hasMisspelledBinding reports whether a binding without a policy nearly names this one. Rule binding-without-policy reports
// the binding.
func (p *pass) hasMisspelledBinding(policy *snapshot.Entry) bool {
	return slices.ContainsFunc(p.Snapshot.Entries(policy.Source.Descriptor().Bindings), func(e *snapshot.Entry) bool {
		return p.Snapshot.Bound(e) == nil && nearest.Suggestion("", e.Binding.PolicyName, []string{policy.Configuration}) != ""
	})
}

// isLibrary reports whether most of the policies of a source have no binding.
func (p *pass) isLibrary(source registration.Source) bool {
	bound, others := 0, 0
	for _, e := range p.Snapshot.Entries(source) {
		if e.Bindings != nil {
			bound++
		} else {
			others++
		}
	}
	return others > bound
}

var bindingWithoutPolicy = &Rule{
	ID: "binding-without-policy", Level: Warning,
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			if e.Binding != nil && p.Snapshot.Bound(e) == nil {
				p.namesNone(at(e.Entry, "policyName"), e.String(), e.Binding.PolicyName, e.Source.Descriptor().Bound)
			}
		})
		for o, w := range p.Written {
			for _, d := range registration.Sources() {
				if d.Binds && d.Source.String() == o.Kind && w.PolicyName != "" && len(w.Invalid) > 0 {
					p.namesNone(place{o, []any{"spec", "policyName"}}, o.Name, w.PolicyName, d.Bound)
				}
			}
		}
	},
}

// namesNone adds a finding for a binding that names no policy of a source.
func (p *pass) namesNone(where place, binding, name string, bound registration.Source) {
	policies := p.Snapshot.Entries(bound)
	_, refused := p.Written[Object{Kind: bound.String(), Name: name}]
	switch {
	case refused || p.Hidden[bound] != "" || slices.ContainsFunc(policies, func(e *snapshot.Entry) bool { return e.Configuration == name }):
		// Rules invalid and expression-invalid report a policy that is refused.
	case !p.Partial:
		p.finds(where, "the binding %s names the %s %q, which does not exist", binding, bound, name)
	case len(policies) == 0:
		p.misses("%s %q, which a binding names, is in no file", bound, name)
	case p.Kustomized && slices.ContainsFunc(policies, func(policy *snapshot.Entry) bool {
		return strings.HasSuffix(name, policy.Configuration) || strings.HasPrefix(name, policy.Configuration)
	}):
		p.misses("%s %q, which a binding names: a kustomization may add to the name of a policy", bound, name)
	default:
		p.finds(where, "the binding %s names the %s %q; the files have other policies, and not this one", binding, bound, name)
	}
}

var warnBindingRejects = &Rule{
	ID: "warn-binding-rejects", Level: Note,
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if e.Source != registration.ValidatingBindings || slices.Contains(e.Binding.Actions, v1.Deny) {
			return
		}
		policy := p.Snapshot.Bound(e)
		if policy == nil || !failsClosed(policy) || policy.Entry.Policy.ParamKind == nil && len(policy.Entry.Policy.AuditAnnotations) == 0 {
			return
		}
		p.finds(at(e.Entry, "validationActions"), "the binding %s only has the actions %v, and the policy %s rejects requests all the same when its params or audit annotations fail",
			e, e.Binding.Actions, policy)
	}),
}
