package agreement

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxShrinks is the maximum number of smaller worlds to try.
const maxShrinks = 300

// shrink removes the parts of a world that its difference does not need. It returns the comparison of the smaller
// world.
func shrink(t *testing.T, c *comparison) *comparison {
	alone := c.world.clone()
	alone.requests = []*request{c.request}
	smaller := func(w *world) *comparison {
		if all := run(t, w); len(all[0].differences()) > 0 {
			return &all[0]
		}
		return nil
	}
	best := smaller(alone)
	if best == nil {
		// The difference needs the earlier requests of the world.
		return c
	}
	for tries := 0; tries < maxShrinks; {
		found := false
		for _, step := range steps(best.world) {
			if tries++; tries > maxShrinks {
				break
			}
			w := best.world.clone()
			step(w)
			if next := smaller(w); next != nil {
				best, found = next, true
				break
			}
		}
		if !found {
			break
		}
	}
	return best
}

func (w *world) clone() *world {
	c := *w
	c.answers = maps.Clone(w.answers)
	c.configurations = slices.Clone(w.configurations)
	for i := range c.configurations {
		k := &c.configurations[i]
		k.webhooks = slices.Clone(k.webhooks)
		for j := range k.webhooks {
			h := &k.webhooks[j]
			h.Rules, h.MatchConditions = slices.Clone(h.Rules), slices.Clone(h.MatchConditions)
		}
	}
	return &c
}

// steps returns the ways to make a world slightly smaller, those with the greatest effect first.
func steps(w *world) (all []func(*world)) {
	add := func(step func(*world)) { all = append(all, step) }
	for i := range w.configurations {
		add(func(w *world) { w.configurations = slices.Delete(w.configurations, i, i+1) })
	}
	for i, k := range w.configurations {
		for j, h := range k.webhooks {
			in := func(w *world) *configuration { return &w.configurations[i] }
			add(func(w *world) { in(w).webhooks = slices.Delete(in(w).webhooks, j, j+1) })
			if id := idOf(&h.ClientConfig); !w.answers[id].plain() {
				add(func(w *world) { w.answers[id] = answer{Allowed: true} })
			}
			if len(h.MatchConditions) > 0 {
				add(func(w *world) { in(w).webhooks[j].MatchConditions = nil })
			}
			for n := range h.Rules {
				if len(h.Rules) > 1 {
					add(func(w *world) {
						rules := &in(w).webhooks[j].Rules
						*rules = slices.Delete(*rules, n, n+1)
					})
				}
			}
			if h.NamespaceSelector != nil && len(h.NamespaceSelector.MatchLabels)+len(h.NamespaceSelector.MatchExpressions) > 0 {
				add(func(w *world) { in(w).webhooks[j].NamespaceSelector = &metav1.LabelSelector{} })
			}
			if h.ObjectSelector != nil && len(h.ObjectSelector.MatchLabels)+len(h.ObjectSelector.MatchExpressions) > 0 {
				add(func(w *world) { in(w).webhooks[j].ObjectSelector = &metav1.LabelSelector{} })
			}
		}
	}
	if w.first != "" {
		add(func(w *world) { w.first = "" })
	}
	for i, r := range w.requests {
		if r.timeout+r.gone > 0 {
			add(func(w *world) {
				patient := *r
				patient.timeout, patient.gone = 0, 0
				w.requests = slices.Clone(w.requests)
				w.requests[i] = &patient
			})
		}
	}
	return all
}

// plain reports whether an answer only allows.
func (a answer) plain() bool {
	return a.Allowed == true && a.Wire == "" && a.Status == 0 && a.Body == nil && !a.Gzip && a.Version == "" && a.Kind == "" && a.UID == "" &&
		!a.Absent && a.Result == nil && a.Patch == nil && a.PatchType == nil && a.Warnings == nil && a.AuditAnnotations == nil && len(a.Header) == 0
}
