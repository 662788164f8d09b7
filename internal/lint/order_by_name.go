package lint

import (
	"k8s.io/apiserver/pkg/admission"
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var orderByName = &Rule{
	ID: "order-by-name", Level: Note, Advice: "dont-rely-webhook-order",
	Reads: []Part{Kinds},
	Title: "Names alone decide which of two mutating webhooks or policies acts first",
	Why: "Both change the same kind of object. They act in the order of the names of their configurations, so that a new name changes what objects become. " +
		"The first one does not see what the second one changes, unless its reinvocationPolicy is IfNeeded.",
	Fix: "Make the result independent of the order, or set reinvocationPolicy to IfNeeded. On Gatehouse, the annotation " + registration.AfterAnnotation + " or " +
		registration.BeforeAnnotation + " of one of them can name the other one; a kube-apiserver ignores these annotations.",
	Fails:  ordered("policies", "") + "---\n" + ordered("sidecars", ""),
	Passes: ordered("policies", "sidecars") + "---\n" + ordered("sidecars", ""),
	check: func(p *pass) {
		for _, source := range []registration.Source{registration.MutatingPolicies, registration.Mutating} {
			p.orderedByName(source)
		}
	},
}

// orderedByName finds neighbours among the entries for one kind of object whose order no
// constraint sets.
func (p *pass) orderedByName(source registration.Source) {
	// later has, by name, the entries that act later by a constraint.
	later := map[string][]string{}
	for _, c := range p.Snapshot.Constraints(source) {
		if c.Granted() {
			later[c.Earlier] = append(later[c.Earlier], c.Later)
		}
	}
	type pair struct{ first, second string }
	said := map[pair]bool{}
	for _, r := range p.named() {
		q := request(admission.Create, target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", p.someNamespace(&r), "one"}, somebody, nil)
		var before *snapshot.Entry
		p.eachHitOf([]registration.Source{source}, q, mayAct, func(h hit) {
			first := before
			before = h.Entry
			if first == nil || first.Configuration == h.Configuration || first.Static() != h.Static() || reinvoked(first) {
				return
			}
			names := pair{first.Configuration, h.Configuration}
			if said[names] || !p.isWanted(first) && !p.isWanted(h.Entry) || reaches(later, first.Configuration, h.Configuration, map[string]bool{}) {
				return
			}
			said[names] = true
			where := place{object: objectOf(h.Entry.Entry), path: []any{"metadata", "name"}}
			if !p.wanted(where.object) {
				where.object = objectOf(first.Entry)
			}
			p.finds(where, "%s acts before %s on %s because of its name alone", first.Configuration, h.Configuration, r.GroupResource())
		})
	}
}

// mayAct reports whether an entry can apply: a policy needs a binding.
func mayAct(e *snapshot.Entry) bool { return e.Entry.Policy == nil || e.Bindings != nil }

// reinvoked reports whether an entry acts again when a later one has changed the object.
func reinvoked(e *snapshot.Entry) bool {
	if e.Entry.Policy != nil {
		return e.Entry.Policy.Reinvoked
	}
	return e.MayReinvoke
}

// reaches reports whether later leads from one name to another.
func reaches(later map[string][]string, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(later[from], func(next string) bool { return reaches(later, next, to, seen) })
}
