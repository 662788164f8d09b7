package lint

import "github.com/gatehouse-dev/gatehouse/admission/registration"

var initializerCycle = &Rule{
	ID: "initializer-cycle", Level: Warning,
	Title:  "Initializers contradict each other about their order",
	Why:    "The fields after and before ask for an order that cannot be. One of the wishes is not granted, and nothing says which.",
	Fix:    "Remove one of the wishes of the cycle.",
	Fails:  initializers("second.example.com", "first.example.com"),
	Passes: initializers("second.example.com", ""),
	check: func(p *pass) {
		var list []*registration.Entry
		for _, e := range p.Snapshot.Entries(registration.Initializing) {
			list = append(list, e.Entry)
		}
		// later has, by name, what asks to come after it.
		later := map[string][]registration.Constraint{}
		for _, c := range registration.Constraints(list) {
			later[c.Earlier] = append(later[c.Earlier], c)
		}
		done := map[string]bool{}
		for _, e := range list {
			if done[e.Name] {
				continue
			}
			cycle := around(later, e.Name)
			if cycle == nil {
				continue
			}
			var wishes []string
			where := at(cycle[0].By)
			for _, c := range cycle {
				done[c.Earlier] = true
				wishes = append(wishes, c.String())
				if p.wanted(objectOf(c.By)) && !p.wanted(where.object) {
					where = at(c.By)
				}
			}
			p.finds(where, "initializers ask for an order that cannot be: %s", and(wishes))
		}
	},
}

// around returns a shortest cycle of wishes through a name.
func around(later map[string][]registration.Constraint, name string) []registration.Constraint {
	type step struct {
		registration.Constraint
		before *step
	}
	var queue []*step
	seen := map[string]bool{}
	add := func(from string, before *step) {
		for _, c := range later[from] {
			if !seen[c.Later] {
				seen[c.Later] = true
				queue = append(queue, &step{c, before})
			}
		}
	}
	add(name, nil)
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.Later != name {
			add(s.Later, s)
			continue
		}
		var cycle []registration.Constraint
		for ; s != nil; s = s.before {
			cycle = append([]registration.Constraint{s.Constraint}, cycle...)
		}
		return cycle
	}
	return nil
}

// initializers is an example with two initializers, and those that each comes after.
func initializers(first, second string) string {
	one := func(name, after string) string {
		return "- name: " + name + "\n  after: [" + after + "]\n  rules: [{apiGroups: [\"\"], apiVersions: [v1], resources: [pods]}]\n"
	}
	return "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\nmetadata: {name: sidecars}\ninitializers:\n" +
		one("first.example.com", first) + one("second.example.com", second)
}
