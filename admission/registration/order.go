package registration

import "slices"

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
	// earlier has, per place, the places that must come earlier.
	earlier := make([][]int, len(list))
	wishes := false
	for i, in := range list {
		for _, name := range in.After {
			if j, ok := first[name]; ok {
				earlier[i], wishes = append(earlier[i], j), true
			}
		}
		for _, name := range in.Before {
			if j, ok := first[name]; ok {
				earlier[j], wishes = append(earlier[j], i), true
			}
		}
	}
	if !wishes {
		return list
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
