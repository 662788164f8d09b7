package lint

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

var initializerCycle = &Rule{
	ID: "initializer-cycle", Level: Warning,
	check: func(p *pass) {
		p.cycles(registration.Initializing, "initializers", func(c *registration.Constraint) place { return at(c.By) })
	},
}

// cycles finds contradictory constraints on the order of the entries of a source; where returns the
// place of a constraint.
func (p *pass) cycles(source registration.Source, what string, where func(*registration.Constraint) place) {
	constraints := p.Snapshot.Constraints(source)
	// later has, by name, the constraints of entries that must come after the name.
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

// around returns a shortest cycle through a node; nil if there is none. edges returns the outgoing
// edges of a node, and to the target of an edge.
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

// idle is the time after which an object that waits for an initializer is reported.
const idle = time.Hour

var initializerIdle = &Rule{
	ID: "initializer-idle", Level: Warning,
	Reads: []Part{Waiting},
	check: func(p *pass) {
		waiting := map[string][]string{}
		oldest := map[string]time.Duration{}
		for _, w := range p.Waiting {
			if age := p.Now.Sub(w.Since); age > idle {
				waiting[w.Initializer] = append(waiting[w.Initializer], w.Object.String())
				oldest[w.Initializer] = max(oldest[w.Initializer], age)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(waiting)) {
			where := place{object: Object{Kind: "initializer", Name: name}}
			registered := "which is not registered any more"
			if e := p.Snapshot.Initializer(name); e != nil {
				where, registered = at(e.Entry), fmt.Sprintf("which is registered with failurePolicy %s", e.FailurePolicy)
			}
			p.finds(where, "%s waits for %s, %s, for %v", few(waiting[name]), name, registered, oldest[name].Round(time.Minute))
		}
	},
}
