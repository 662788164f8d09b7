package lint

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

var initializerCycle = &Rule{
	ID: "initializer-cycle", Level: Warning,
	Title:  "Initializers contradict each other about their order",
	Why:    "The fields after and before ask for an order that cannot be. One of the wishes is not granted, and nothing says which.",
	Fix:    "Remove one of the wishes of the cycle.",
	Fails:  initializers("second.example.com", "first.example.com"),
	Passes: initializers("second.example.com", ""),
	check: func(p *pass) {
		p.cycles(registration.Initializing, "initializers", func(c *registration.Constraint) place { return at(c.By) })
	},
}

// cycles finds constraints on the order of the entries of a source that contradict each other;
// where returns the place of a constraint.
func (p *pass) cycles(source registration.Source, what string, where func(*registration.Constraint) place) {
	constraints := p.Snapshot.Constraints(source)
	// later has, by name, the constraints of entries that ask to come after the name.
	later := map[string][]registration.Constraint{}
	for _, c := range constraints {
		later[c.Earlier] = append(later[c.Earlier], c)
	}
	done := map[string]bool{}
	for i := range constraints {
		name := constraints[i].Earlier
		if done[name] {
			continue
		}
		cycle := around(name, func(n string) []registration.Constraint { return later[n] }, func(c registration.Constraint) string { return c.Later })
		if cycle == nil {
			continue
		}
		var wishes []string
		at := where(&cycle[0])
		for i := range cycle {
			c := &cycle[i]
			done[c.Earlier] = true
			wishes = append(wishes, c.String())
			if p.wanted(objectOf(c.By)) && !p.wanted(at.object) {
				at = where(c)
			}
		}
		p.finds(at, "%s ask for an order that cannot be: %s", what, and(wishes))
	}
}

// around returns a shortest cycle of edges through a node; nil if there is none. edges are those from
// a node, and to is where one leads.
func around[N comparable, E any](node N, edges func(N) []E, to func(E) N) []E {
	type step struct {
		edge   E
		before *step
	}
	var queue []*step
	seen := map[N]bool{}
	add := func(from N, before *step) {
		for _, e := range edges(from) {
			if !seen[to(e)] {
				seen[to(e)] = true
				queue = append(queue, &step{e, before})
			}
		}
	}
	add(node, nil)
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if at := to(s.edge); at != node {
			add(at, s)
			continue
		}
		var cycle []E
		for ; s != nil; s = s.before {
			cycle = append(cycle, s.edge)
		}
		slices.Reverse(cycle)
		return cycle
	}
	return nil
}

// initializers returns an example with two initializers, and the names that each comes after.
func initializers(first, second string) string {
	one := func(name, after string) string {
		return "- name: " + name + "\n  after: [" + after + "]\n  rules: [{apiGroups: [\"\"], apiVersions: [v1], resources: [pods]}]\n"
	}
	return "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\nmetadata: {name: sidecars}\ninitializers:\n" +
		one("first.example.com", first) + one("second.example.com", second)
}
