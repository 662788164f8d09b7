package lint

import (
	"slices"
	"strings"

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

// manyMutating is how many webhooks for one request are worth a note.
const manyMutating = 5

var manyMutatingWebhooks = &Rule{
	ID: "many-mutating-webhooks", Level: Note, Advice: "design-admission-webhooks-low-latency",
	Reads:  []Part{Kinds},
	Title:  "Many mutating webhooks are called for one request",
	Why:    "They are called one after the other, some of them twice. Their times add up, and the chance grows that two of them undo each other's changes for ever.",
	Fix:    "Put webhooks that do similar things into one server and one configuration, and narrow their rules and match conditions.",
	Fails:  manyHooks(manyMutating + 1),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"),
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

func manyHooks(n int) string {
	var list []string
	for i := range n {
		letter := string(rune('a' + i))
		list = append(list, strings.ReplaceAll(hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"), "name: policies}\nwebhooks", "name: policies-"+letter+"}\nwebhooks"))
	}
	return strings.Join(list, "---\n")
}

// later returns an example with another name, which comes later in the order.
func later(example string) string {
	return strings.NewReplacer("metadata: {name: policies}", "metadata: {name: sidecars}", "check.policies", "inject.sidecars").Replace(example)
}

var notReinvoked = &Rule{
	ID: "not-reinvoked", Level: Note, Advice: "dont-rely-webhook-order",
	Reads: []Part{Kinds},
	Title: "A mutating webhook does not see what later ones change",
	Why: "Webhooks are called in the order of the names of their configurations. One with reinvocationPolicy Never sees neither the containers that a later one " +
		"adds nor the fields that a later one overwrites.",
	Fix: "Set reinvocationPolicy to IfNeeded if the webhook makes no change when its change is there already.",
	Fails: hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: Never\n") + "---\n" +
		later(hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: IfNeeded\n")),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: IfNeeded\n") + "---\n" +
		later(hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: IfNeeded\n")),
	check: func(p *pass) {
		said := map[*snapshot.Entry]bool{}
		for _, r := range p.named() {
			q := request(admission.Create, target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", p.someNamespace(&r), "one"}, somebody, nil)
			list := p.hits(q, mutates)
			for i, h := range list {
				if h.MayReinvoke || said[h.Entry] || i == len(list)-1 || !p.isWanted(h.Entry) || h.Source != registration.Mutating {
					continue
				}
				said[h.Entry] = true
				p.finds(at(h.Entry.Entry, "reinvocationPolicy"), "the webhook %s does not see what %s changes in %s, and is not called again", h.Name, list[len(list)-1].Name, r.GroupResource())
			}
		}
	},
}

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

var orderCycle = &Rule{
	ID: "order-cycle", Level: Warning,
	Title: "Webhooks or mutating policies contradict each other about their order",
	Why: "The annotations " + registration.AfterAnnotation + " and " + registration.BeforeAnnotation + " ask for an order that cannot be. One of the wishes is not granted. " +
		"A kube-apiserver ignores all of them.",
	Fix:    "Remove one of the wishes of the cycle.",
	Fails:  ordered("policies", "sidecars") + "---\n" + ordered("sidecars", "policies"),
	Passes: ordered("policies", "sidecars") + "---\n" + ordered("sidecars", ""),
	check: func(p *pass) {
		p.cycles(registration.Mutating, "mutating webhook configurations", annotated)
		p.cycles(registration.MutatingPolicies, "mutating policies", annotated)
	},
}

// annotated is the place of an annotation that asks for an order.
func annotated(c *registration.Constraint) place {
	annotation := registration.BeforeAnnotation
	if c.By.Configuration == c.Later {
		annotation = registration.AfterAnnotation
	}
	return place{object: objectOf(c.By), path: []any{"metadata", "annotations", annotation}}
}

// ordered returns an example of a configuration that asks to come after another one.
func ordered(name, after string) string {
	example := hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: Never\n")
	metadata := "metadata: {name: " + name + "}"
	if after != "" {
		metadata = "metadata:\n  name: " + name + "\n  annotations: {" + registration.AfterAnnotation + ": " + after + "}"
	}
	return strings.NewReplacer("metadata: {name: policies}", metadata, "check.policies", "check."+name).Replace(example)
}

var mutationNotValidated = &Rule{
	ID: "mutation-not-validated", Level: Note, Advice: "validate-mutations",
	Reads: []Part{Kinds},
	Title: "Nothing validates what a mutating webhook sets",
	Why: "The webhook has failurePolicy Ignore and may be skipped, a later webhook may undo the change, and users may update the object where the webhook does not look. " +
		"Nobody notices unless the validating pass looks at the result.",
	Fix:   "The rule looks at clusters: files do not say what else validates in one. If it matters that the change is there, add a ValidatingAdmissionPolicy or a validating webhook for the same resources.",
	Fails: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n") + "---\n" + strings.ReplaceAll(hook(validating, anyPod+outside+"failurePolicy: Ignore\n"), "[pods]", "[services]"),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n") + "---\n" +
		policy("validations:\n- {expression: \"object.spec.containers.exists(c, c.name == 'sidecar')\"}\n"),
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
				p.findsCause(Note, at(e.Entry), "any", "the webhook "+e.Name, "no validating webhook or policy in force judges what the mutating webhook %s changes", e.Name)
			}
		})
	},
}

// validated reports whether any entry judges writes of a resource in the validating pass.
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
	Title: "A webhook's side effects break dry runs",
	Why: "A dry run must change nothing. The API server rejects each dry run that would call a webhook whose side effects are Some, Unknown or not said: " +
		"kubectl diff and apply --dry-run=server fail.",
	Fix:    "Have the webhook do nothing but answer when dryRun is true, and declare sideEffects: NoneOnDryRun, or None.",
	Fails:  inBeta(hook(validating, anyPod+outside+"failurePolicy: Ignore\n"), "sideEffects: None", "sideEffects: Unknown"),
	Passes: hook(validating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		p.webhooks(func(e *snapshot.Entry) {
			c := plan.Candidate{Entry: e}
			if reason, _ := c.Beforehand(&plan.Request{DryRun: true}); reason.Code == plan.NoDryRun || reason.Code == plan.NoSideEffects {
				p.finds(at(e.Entry, "sideEffects"), "dry runs that the webhook %s would judge are rejected: %s", e.Name, reason)
			}
		})
	},
}
