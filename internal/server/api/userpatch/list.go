package userpatch

import "slices"

// chunk is the initial number of elements in a part of a list.
const chunk = 512

// list is a list of nodes in parts, so that an element can be added or removed anywhere without moving all
// elements behind it.
type list struct {
	parts  [][]node
	length int
}

func newList(nodes []node) *list {
	l := &list{length: len(nodes)}
	for part := range slices.Chunk(nodes, chunk) {
		l.parts = append(l.parts, part)
	}
	return l
}

// find returns the part for an index up to the length, and the position in the part.
func (l *list) find(index int) (part, place int) {
	for part = range l.parts {
		if index < len(l.parts[part]) {
			return part, index
		}
		index -= len(l.parts[part])
	}
	return len(l.parts), index
}

func (l *list) at(index int) *node {
	part, place := l.find(index)
	return &l.parts[part][place]
}

func (l *list) insert(index int, n node) {
	l.length++
	part, place := l.find(index)
	if part == len(l.parts) {
		if part == 0 {
			l.parts = append(l.parts, nil)
		}
		part = len(l.parts) - 1
		place = len(l.parts[part])
	}
	nodes := slices.Insert(l.parts[part], place, n)
	if l.parts[part] = nodes; len(nodes) > 2*chunk {
		l.parts[part] = slices.Clip(nodes[:chunk])
		l.parts = slices.Insert(l.parts, part+1, slices.Clone(nodes[chunk:]))
	}
}

func (l *list) remove(index int) {
	l.length--
	part, place := l.find(index)
	nodes := slices.Delete(l.parts[part], place, place+1)
	if l.parts[part] = nodes; len(nodes) == 0 {
		l.parts = slices.Delete(l.parts, part, part+1)
	}
}

// forEach calls a function for each element, until it returns an error.
func (l *list) forEach(each func(*node) error) error {
	for _, part := range l.parts {
		for i := range part {
			if err := each(&part[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
