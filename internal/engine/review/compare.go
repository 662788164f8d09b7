package review

import (
	"maps"
	"slices"
)

// Difference is a part of a JSON value that differs before and after a change; nil means that the
// part is absent.
type Difference struct {
	// Path is the path from the value to the part.
	Path          []Segment
	Before, After any
}

// Segment is one level of a path: a member of an object, or the element of a list whose member Key
// has the value Name.
type Segment struct{ Key, Name string }

// Field returns the field path of the part, given the field path of the value.
func (d *Difference) Field(of string) string {
	for _, s := range d.Path {
		if s.Key != "" {
			of += "[" + s.Key + "=" + s.Name + "]"
		} else {
			of += member(s.Name, of == "")
		}
	}
	return of
}

// Of returns the part of a decoded JSON value at the segment.
func (s Segment) Of(value any) (part any, ok bool) {
	if s.Key == "" {
		m, _ := value.(map[string]any)
		part, ok = m[s.Name]
		return part, ok
	}
	items, _ := value.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok && scalar(m[s.Key]) == s.Name {
			return item, true
		}
	}
	return nil, false
}

// Differences returns the smallest parts in which two decoded JSON values differ, in the order of
// their paths. Lists with named elements are compared by name, and other lists as a whole. A part
// that only one value has is one Difference, except that a list with names has one for each
// element.
func Differences(before, after any) []Difference {
	var list []Difference
	compare(&list, nil, before, after)
	return list
}

func compare(list *[]Difference, path []Segment, before, after any) {
	if Equal(before, after) {
		return
	}
	path = slices.Clip(path)
	was, wasMap := before.(map[string]any)
	is, isMap := after.(map[string]any)
	if wasMap && isMap {
		for _, name := range union(was, is) {
			compare(list, append(path, Segment{Name: name}), was[name], is[name])
		}
		return
	}
	key, was, is := named(before, after)
	found := len(*list)
	if key != "" {
		for _, name := range union(was, is) {
			compare(list, append(path, Segment{Key: key, Name: name}), was[name], is[name])
		}
	}
	// A different order of elements is a difference of the whole list.
	if len(*list) == found {
		*list = append(*list, Difference{path, before, after})
	}
}

// named returns the elements of two lists by their names, and the member with the name; it is empty
// unless both are lists with named elements. An absent list is empty.
func named(before, after any) (key string, was, is map[string]any) {
	b, isList := before.([]any)
	a, areList := after.([]any)
	if !isList && before != nil || !areList && after != nil {
		return "", nil, nil
	}
	if key = keyOf(a); len(a) == 0 {
		key = keyOf(b)
	} else if len(b) > 0 && keyOf(b) != key {
		key = ""
	}
	if key == "" {
		return "", nil, nil
	}
	return key, byName(b, key), byName(a, key)
}

func byName(items []any, key string) map[string]any {
	m := make(map[string]any, len(items))
	for _, item := range items {
		m[scalar(item.(map[string]any)[key])] = item
	}
	return m
}

func union(a, b map[string]any) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}
