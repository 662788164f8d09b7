package suite

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
)

// An object must have the expected parts: the named fields, elements in their order or by their names, and numbers by
// their value.
func TestObjectsAreComparedByParts(t *testing.T) {
	list := func(v ...any) []any { return v }
	container := func(name, image string) map[string]any { return map[string]any{"name": name, "image": image} }
	for _, tc := range []struct {
		name      string
		want, got any
		differ    []string
	}{
		{"equal numbers of two types", int64(3), 3.0, nil},
		{"other numbers", int64(3), int64(2), []string{"object: 3, 2"}},
		{"other numbers of two types", 3.5, int64(3), []string{"object: 3.5, 3"}},
		{"a number and a text", int64(3), "3", []string{`object: 3, "3"`}},
		{"other truth", true, false, []string{"object: true, false"}},
		{"more members", map[string]any{"a": int64(1)}, map[string]any{"a": int64(1), "b": int64(2)}, nil},
		{"a member that is missing", map[string]any{"a": int64(1)}, map[string]any{}, []string{"object.a: 1, nothing"}},
		{"a member that must be absent", map[string]any{"a": nil}, map[string]any{"a": int64(1)}, []string{"object.a: nothing, 1"}},
		{"a key with a dot", map[string]any{"a.b": "x"}, map[string]any{"a.b": "y"}, []string{`object["a.b"]: "x", "y"`}},
		{"elements by their names", list(container("b", "2")), list(container("a", "1"), container("b", "2")), nil},
		{"a named element that differs", list(container("b", "2")), list(container("b", "3")), []string{`object[name=b].image: "2", "3"`}},
		{"a named element that is missing", list(container("c", "2")), list(container("b", "3")), []string{`object[name=c]: {"image":"2","name":"c"}, nothing: the names are ["b"]`}},
		{"a named element of a list without names", list(container("c", "2")), list("b"), []string{`object[name=c]: {"image":"2","name":"c"}, nothing: the list is ["b"]`}},
		{"elements in their order", list("a", "b"), list("b", "a"), []string{`object[0]: "a", "b"`, `object[1]: "b", "a"`}},
		{"more elements", list("a"), list("a", "b"), []string{`object: ["a"], ["a","b"]`}},
		{"a mapping and a text", map[string]any{}, "x", []string{`object: {}, "x"`}},
	} {
		var differ []string
		differences("object", tc.want, tc.got, func(path, want, got string) { differ = append(differ, path+": "+want+", "+got) })
		if diff := cmp.Diff(tc.differ, differ); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// The diff of a failed test reduces the object to the expected fields. A list without an expected element is shown as it
// is.
func TestDiffsShowTheRealList(t *testing.T) {
	list := func(names ...string) (of []any) {
		for _, name := range names {
			of = append(of, map[string]any{"name": name, "image": name, "more": "x"})
		}
		return of
	}
	want := []any{map[string]any{"name": "a", "image": "z"}}
	for _, tc := range []struct{ got, shown any }{
		{list("a", "b"), []any{map[string]any{"name": "a", "image": "a"}}},
		{list("b"), list("b")},
		{[]any{"b"}, []any{"b"}},
		{[]any{}, []any{}},
	} {
		if diff := cmp.Diff(map[string]any{"containers": tc.shown}, like(map[string]any{"containers": want}, map[string]any{"containers": tc.got, "other": "x"})); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.got, diff)
		}
	}
}

// Each expectation of a test fails by itself, at its own line.
func TestExpectationsFail(t *testing.T) {
	yes, code, cost := true, int64(403), int64(5)
	e := expect{line: 1, lines: map[string]int{"by": 7, "called": 8}, allowed: &yes, code: &code, by: &rejection.Decider{Policy: "a", Binding: "b"}, called: []string{"hooks/x"}, notCalled: []string{"hooks/y"}, costBelow: &cost}
	o := &Outcome{Code: 422, Message: "no", By: []rejection.Decider{{Policy: "a", Binding: "c"}}, Called: []string{"hooks/y"}, Cost: 5}
	var got []string
	for _, f := range (&Test{expect: e}).compare(o) {
		got = append(got, f.Field)
		if want := e.at(f.Field); f.Line != want {
			t.Errorf("%s: line %d, want %d", f.Field, f.Line, want)
		}
	}
	if diff := cmp.Diff([]string{"allowed", "code", "by", "called", "notCalled", "costBelow"}, got); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}
