package lint

import (
	"slices"

	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var exactMissesVersion = &Rule{
	ID: "exact-misses-version", Level: Warning, Advice: "match-all-versions",
	Reads: []Part{Kinds},
	Title: "matchPolicy Exact leaves out versions of a resource",
	Why: "The same objects can be written through another version, or another group, that the rules do not name. Writes through these versions are not judged, unless " +
		"another webhook of the same server is about them.",
	Fix: "Set matchPolicy to Equivalent, the default of v1, or name all versions.",
	Fails: hook(validating, `rules:
- {apiGroups: [autoscaling], apiVersions: [v2], operations: [CREATE], resources: [horizontalpodautoscalers]}
failurePolicy: Fail
matchPolicy: Exact
`+outside),
	Passes: hook(validating, `rules:
- {apiGroups: [autoscaling], apiVersions: [v2], operations: [CREATE], resources: [horizontalpodautoscalers]}
failurePolicy: Fail
matchPolicy: Equivalent
`+outside),
	check: func(p *pass) {
		if !p.sees(Kinds) || p.Equivalents == nil {
			return
		}
		p.entries(func(e *snapshot.Entry) {
			if e.Equivalent || e.Source == registration.Initializing || len(e.Rules) == 0 {
				return
			}
			var missed []string
			for i := range p.Resources {
				r := &p.Resources[i]
				for _, o := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
					q := plan.Request{Operation: o, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r)}
					if !matchesAny(e.Rules, &q) {
						continue
					}
					for _, other := range p.Equivalents.EquivalentResourcesFor(r.GroupVersionResource, "") {
						q.Resource = other
						name := other.Resource + " of " + other.GroupVersion().String()
						if !matchesAny(e.Rules, &q) && !slices.Contains(missed, name) && !p.inAnother(e, &q) {
							missed = append(missed, name)
						}
					}
				}
			}
			if len(missed) > 0 {
				p.finds(at(e.Entry), "the rules of %s leave out %s, which are the same objects: matchPolicy is Exact", e, few(missed))
			}
		})
	},
}

// inAnother reports whether the server of a webhook judges a request by another webhook.
func (p *pass) inAnother(e *snapshot.Entry, q *plan.Request) bool {
	return e.Webhook != nil && slices.ContainsFunc(p.Snapshot.Entries(e.Source), func(other *snapshot.Entry) bool {
		return addressOf(&other.ClientConfig) == addressOf(&e.ClientConfig) && matchesAny(other.Rules, q)
	})
}

func matchesAny(rules []registration.Rule, q *plan.Request) bool {
	return slices.ContainsFunc(rules, func(r registration.Rule) bool { return plan.RuleMatches(&r, q) })
}
