package lint

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

var variableNull = &Rule{
	ID: "variable-null", Level: Error,
	Reads: []Part{Kinds},
	Title: "An expression reads a variable that is null",
	Why: "params is null for a binding without paramRef, and namespaceObject is null for namespaces and for other objects that are in no namespace. An expression that " +
		"reads a field of null fails, and the failure policy decides: with Fail, each such request is rejected.",
	Fix:    "Name the params in paramRef of the binding. Ask for what may be missing: namespaceObject == null || namespaceObject.metadata.name != 'x'. Or leave these resources out of the rules.",
	Fails:  strings.Replace(withParams, paramRefOfExample, "", 1),
	Passes: withParams,
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			if e.Policy != nil {
				p.nullNamespace(e)
				p.nullParams(e)
			}
		})
	},
}

// nullNamespace finds expressions that read the namespace of what is in none.
func (p *pass) nullNamespace(e *snapshot.Entry) {
	_, others := p.subjects(e)
	for _, f := range p.factsOf(e) {
		reach, ok := expression.NewReach(f.text)
		if !ok || f.use == condition || f.use == other || !strings.Contains(f.text, "namespaceObject") {
			continue
		}
		var failing []string
		for i := range p.Resources {
			r := &p.Resources[i]
			if r.Namespaced || others && r.GroupVersionResource.GroupResource() != (schema.GroupResource{Resource: "namespaces"}) || !isWritten(e, r) {
				continue
			}
			if reach.Uses(p.ctx, "namespaceObject", r.Kind).Always && !slices.Contains(failing, r.Resource) {
				failing = append(failing, r.Resource)
			}
		}
		if len(failing) > 0 {
			level, follows := Warning, "the expression fails"
			if p.rejects(e) {
				level, follows = Error, "each such request is rejected"
			}
			p.findsAs(level, f.at(), "an expression of %s reads namespaceObject, which is null for %s: %s", e, few(failing), follows)
		}
	}
}

// isWritten reports whether an entry is about writes of a resource that is in no namespace.
func isWritten(e *snapshot.Entry, r *Resource) bool {
	return slices.ContainsFunc([]admission.Operation{admission.Create, admission.Update, admission.Delete}, func(o admission.Operation) bool {
		return matchesAny(e.Rules, &plan.Request{Operation: o, Resource: r.GroupVersionResource, Kind: r.Kind})
	})
}

// nullParams finds the bindings that give no params to a policy that reads them (S15.2).
func (p *pass) nullParams(e *snapshot.Entry) {
	if e.Entry.Policy.ParamKind == nil || e.Bindings == nil {
		return
	}
	reads, always := false, false
	list, _ := p.subjects(e)
	for _, f := range p.factsOf(e) {
		reach, ok := expression.NewReach(f.text)
		if !ok {
			continue
		}
		// The policy that asks whether there are params can do without.
		if reach.Uses(p.ctx, "params", schema.GroupVersionKind{}).Whole {
			return
		}
		reads = reads || strings.Contains(f.text, "params.")
		always = always || f.use != other && len(list) > 0 && !slices.ContainsFunc(list, func(s subject) bool {
			return !reach.Uses(p.ctx, "params", s.kind).Always
		})
	}
	for i := range e.Bindings.Groups {
		for _, b := range e.Bindings.Groups[i].Bindings {
			switch {
			case b.Binding.ParamRef != nil || !p.isWanted(b):
			case always && failsClosed(e) && denies(b):
				p.finds(at(b.Entry), "the binding %s has no paramRef, so that params is null, and the policy %s reads params: each request that it is about is rejected", b, e)
			case reads:
				p.findsAs(Warning, at(b.Entry), "the binding %s has no paramRef, so that params is null, and the policy %s reads params: an expression that does fails", b, e)
			}
		}
	}
}
