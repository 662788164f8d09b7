package lint

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var mutatingFailsClosed = &Rule{
	ID: "mutating-fails-closed", Level: Note, Advice: "fail-open-validate-final-state",
	check: eachWebhook(func(p *pass, e *snapshot.Entry) {
		if mutates(e) && failsClosed(e) && !optsIn(e.ObjectSelector) && !optsIn(e.NamespaceSelector) && p.aboutSystem(e) {
			p.findsCause(p.rule.Level, at(e.Entry, "failurePolicy"), "any", "the webhook "+e.Name, "the mutating webhook %s fails closed: while it cannot be reached, objects are rejected that need no change", e.Name)
		}
	}),
}

// optsIn reports whether a selector selects only objects with an opt-in label.
func optsIn(s labels.Selector) bool {
	if s == nil {
		return false
	}
	requirements, _ := s.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		return slices.Contains([]selection.Operator{selection.In, selection.Equals, selection.DoubleEquals, selection.Exists}, r.Operator())
	})
}

// manyMutating is the number of mutating webhooks for one request that is worth a note.
const manyMutating = 5

var manyMutatingWebhooks = &Rule{
	ID: "many-mutating-webhooks", Level: Note, Advice: "design-admission-webhooks-low-latency",
	Reads: []Part{Kinds},
	check: func(p *pass) {
		for _, r := range p.named() {
			q := request(admission.Create, target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", p.someNamespace(&r), "one"}, somebody, nil)
			list := p.hits(q, mutates)
			if len(list) <= manyMutating {
				continue
			}
			var names []string
			where := at(list[0].Entry.Entry)
			for _, h := range list {
				names = append(names, h.Name)
				if p.isWanted(h.Entry) && !p.wanted(where.object) {
					where = at(h.Entry.Entry)
				}
			}
			p.finds(where, "%d mutating webhooks are called one after the other for a new object of %s: %s", len(list), r.GroupResource(), few(names))
		}
	},
}

var notReinvoked = &Rule{
	ID: "not-reinvoked", Level: Note, Advice: "dont-rely-webhook-order",
	Reads: []Part{Kinds},
	check: func(p *pass) {
		said := map[*snapshot.Entry]bool{}
		for _, r := range p.named() {
			q := request(admission.Create, target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", p.someNamespace(&r), "one"}, somebody, nil)
			list := p.hits(q, mutates)
			for i, h := range list {
				if h.MayReinvoke || said[h.Entry] || !p.isWanted(h.Entry) || h.Source != registration.Mutating {
					continue
				}
				later := slices.DeleteFunc(slices.Clone(list[i+1:]), func(other hit) bool {
					return sameProgram(other.Entry, h.Entry) || p.apart(h.Entry, other.Entry)
				})
				if len(later) == 0 {
					continue
				}
				said[h.Entry] = true
				p.finds(at(h.Entry.Entry, "reinvocationPolicy"), "the webhook %s does not see what %s changes in %s, and is not called again", h.Name, later[len(later)-1].Name, r.GroupResource())
			}
		}
	},
}

var orderByName = &Rule{
	ID: "order-by-name", Level: Note, Advice: "dont-rely-webhook-order",
	Reads: []Part{Kinds},
	check: func(p *pass) {
		for _, source := range []registration.Source{registration.MutatingPolicies, registration.Mutating} {
			p.orderedByName(source)
		}
	},
}

// orderedByName finds adjacent entries for the same kind of object whose order is not set by a
// constraint.
func (p *pass) orderedByName(source registration.Source) {
	// later has, by name, the entries that a constraint puts later.
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
			if first == nil || sameProgram(first, h.Entry) || first.Static() != h.Static() || reinvoked(first) {
				return
			}
			names := pair{first.Configuration, h.Configuration}
			if said[names] || p.apart(first, h.Entry) || !p.isWanted(first) && !p.isWanted(h.Entry) || reaches(later, first.Configuration, h.Configuration, map[string]bool{}) {
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

// sameProgram reports whether one program, which knows the order, acts for two entries: they have one configuration, or one
// service.
func sameProgram(a, b *snapshot.Entry) bool {
	if a.Configuration == b.Configuration || a.Webhook == nil || b.Webhook == nil {
		return a.Configuration == b.Configuration
	}
	of, named := namedService(&a.ClientConfig)
	other, _ := namedService(&b.ClientConfig)
	return named && of == other
}

// apart reports whether nothing shows that two entries are for one cluster.
func (p *pass) apart(a, b *snapshot.Entry) bool {
	if p.Apart == nil || !p.Apart(objectOf(a.Entry), objectOf(b.Entry)) {
		return false
	}
	if a.Webhook == nil || b.Webhook == nil {
		return true
	}
	of, inside := p.serviceOf(&a.ClientConfig)
	other, both := p.serviceOf(&b.ClientConfig)
	return !inside || !both || of.Namespace != other.Namespace
}

// mayAct reports whether an entry can apply: a policy needs a binding.
func mayAct(e *snapshot.Entry) bool { return e.Entry.Policy == nil || e.Bindings != nil }

// reinvoked reports whether an entry is called again after a later entry has changed the object.
func reinvoked(e *snapshot.Entry) bool {
	if e.Entry.Policy != nil {
		return e.Entry.Policy.Reinvoked
	}
	return e.MayReinvoke
}

// reaches reports whether a chain of later leads from one name to another.
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

var orderCycle = &Rule{
	ID: "order-cycle", Level: Warning,
	check: func(p *pass) {
		p.cycles(registration.Mutating, "mutating webhook configurations", annotated)
		p.cycles(registration.MutatingPolicies, "mutating policies", annotated)
	},
}

// annotated returns the place of an annotation that requests an order.
func annotated(c *registration.Constraint) place {
	annotation := registration.BeforeAnnotation
	if c.By.Configuration == c.Later {
		annotation = registration.AfterAnnotation
	}
	return place{object: objectOf(c.By), path: []any{"metadata", "annotations", annotation}}
}

var mutationNotValidated = &Rule{
	ID: "mutation-not-validated", Level: Note, Advice: "validate-mutations",
	Reads: []Part{Kinds},
	check: func(p *pass) {
		if p.Partial || p.Hidden[registration.Validating] != "" || p.Hidden[registration.ValidatingPolicies] != "" {
			return
		}
		known := map[schema.GroupVersionResource]bool{}
		validated := func(r *Resource) bool {
			answer, ok := known[r.GroupVersionResource]
			if !ok {
				answer = p.validated(r)
				known[r.GroupVersionResource] = answer
			}
			return answer
		}
		p.webhooks(func(e *snapshot.Entry) {
			if !mutates(e) || failsClosed(e) {
				return
			}
			mutatedAny := false
			for i := range p.Resources {
				r := &p.Resources[i]
				q := plan.Request{Operation: admission.Create, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r), Name: "one"}
				if !matchesAny(e.Rules, &q) {
					continue
				}
				mutatedAny = true
				if validated(r) {
					return
				}
			}
			if mutatedAny {
				p.findsCause(Note, at(e.Entry), "any", "the webhook "+e.Name, "no active validating webhook or policy checks the changes of the mutating webhook %s", e.Name)
			}
		})
	},
}

// validated reports whether any entry of the validating pass evaluates writes of a resource.
func (p *pass) validated(r *Resource) bool {
	for _, o := range []admission.Operation{admission.Create, admission.Update} {
		q := plan.Request{Operation: o, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r), Name: "one"}
		for _, source := range []registration.Source{registration.Validating, registration.External, registration.ValidatingPolicies} {
			if len(plan.Candidates(p.Snapshot, source, &q, p.Equivalents)) > 0 {
				return true
			}
		}
	}
	return false
}

var dryRunRejected = &Rule{
	ID: "dry-run-rejected", Level: Warning, Advice: "avoid-side-effects",
	check: eachWebhook(func(p *pass, e *snapshot.Entry) {
		if p.byOldDefault(e.Entry, "sideEffects") {
			return
		}
		c := plan.Candidate{Entry: e}
		if reason, _ := c.Beforehand(&plan.Request{DryRun: true}); reason.Code == plan.NoDryRun || reason.Code == plan.NoSideEffects {
			p.findsCause(p.rule.Level, at(e.Entry, "sideEffects"), e.Configuration+reason.String(), "the webhook "+e.Name, "dry runs that match the webhook %s are rejected: %s", e.Name, reason)
		}
	}),
}
