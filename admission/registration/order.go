package registration

import (
	"fmt"
	"slices"
)

// Constraint is something that an initializer asks of the order: Earlier acts before
// Later.
type Constraint struct {
	Earlier, Later string
	// By is the initializer that asks for it, one of the two.
	By *Entry
	// at is its place in the list.
	at int
}

// String says it in words.
func (c Constraint) String() string {
	if c.By.Name == c.Later {
		return fmt.Sprintf("%q is after %q (configuration %q)", c.Later, c.Earlier, c.By.Configuration)
	}
	return fmt.Sprintf("%q is before %q (configuration %q)", c.Earlier, c.Later, c.By.Configuration)
}

// Constraints lists what initializers ask of their order by After and Before, in the
// order of the list. Names that are not in it mean nothing.
func Constraints(list []*Entry) []Constraint {
	known := make(map[string]bool, len(list))
	for _, i := range list {
		known[i.Name] = true
	}
	var constraints []Constraint
	add := func(earlier, later string, at int) {
		if known[earlier] && known[later] {
			constraints = append(constraints, Constraint{earlier, later, list[at], at})
		}
	}
	for at, i := range list {
		for _, name := range i.After {
			add(name, i.Name, at)
		}
		for _, name := range i.Before {
			add(i.Name, name, at)
		}
	}
	return constraints
}

// arrange puts initializers into the order in which they act. The list comes in
// the order of S11.5, and stays in it except where an initializer must come
// earlier than one that stands before it: it is then moved right before that one.
// Names that are not in the list mean nothing. Of wishes that contradict each
// other one is not granted.
func arrange(list []*Entry) []*Entry {
	// first has the place of the first initializer of each name.
	first := make(map[string]int, len(list))
	for i, in := range list {
		if _, ok := first[in.Name]; !ok {
			first[in.Name] = i
		}
	}
	constraints := Constraints(list)
	if len(constraints) == 0 {
		return list
	}
	// earlier has, per place, the places that must come earlier.
	earlier := make([][]int, len(list))
	for _, c := range constraints {
		sooner, later := first[c.Earlier], first[c.Later]
		// The entry that asks for it need not be the first of its name.
		if c.By.Name == c.Later {
			later = c.at
		} else {
			sooner = c.at
		}
		earlier[later] = append(earlier[later], sooner)
	}
	const (
		untouched = iota
		underWay
		placed
	)
	state := make([]int, len(list))
	out := make([]*Entry, 0, len(list))
	var place func(int)
	place = func(i int) {
		if state[i] != untouched {
			return
		}
		state[i] = underWay
		slices.Sort(earlier[i])
		for _, j := range earlier[i] {
			place(j)
		}
		state[i] = placed
		out = append(out, list[i])
	}
	for i := range list {
		place(i)
	}
	return out
}
