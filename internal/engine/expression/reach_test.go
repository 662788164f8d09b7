package expression

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A part that the evaluation for objects of a kind cannot reach does not fail for them (S16.24).
func TestReach(t *testing.T) {
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	const x = "object.spec.template"
	for _, tc := range []struct {
		text    string
		missing bool
		want    bool
	}{
		{x + ".ready", false, true},
		{"object.kind != 'Pod' || " + x + ".ready", false, true},
		{"object.kind != 'Job' || " + x + ".ready", false, false},
		{"!(object.kind in ['Job', 'Deployment']) || " + x + ".ready", false, false},
		{"['Job', 'Deployment'].all(k, object.kind != k) || " + x + ".ready", false, false},
		{"['Job', 'Pod'].all(k, object.kind != k) || " + x + ".ready", false, true},
		{"object.kind == 'Pod' ? object.spec.ready : " + x + ".ready", false, false},
		{"object.kind == 'Job' ? object.spec.ready : " + x + ".ready", false, true},
		{"(object.kind == 'Pod' ? object.spec : " + x + ").all(c, c.ready)", false, false},
		{"object.apiVersion == 'v1' || " + x + ".ready", false, false},
		{"request.kind.kind == 'Pod' || " + x + ".ready", false, false},
		{"request.resource.resource == 'pods' || " + x + ".ready", false, false},
		{"request.operation == 'DELETE' || " + x + ".ready", false, true},
		{"object == null || object.kind == 'Pod' || " + x + ".ready", false, false},
		{"params.spec.any || variables.any || " + x + ".ready", false, true},
		{"object['kind'] == 'Pod' || " + x + ".ready", false, true},
		{"[1, 2].all(i, object.kind == 'Pod' ? i == 1 : " + x + ".ready)", false, false},
		{"[1, 2].all(i, object.kind == 'Job' ? i == 1 : " + x + ".ready)", false, true},
		// has() is false for a field that the kind does not have.
		{"!has(" + x + ") || " + x + ".ready", false, true},
		{"!has(" + x + ") || " + x + ".ready", true, false},
		{"has(" + x + ") && " + x + ".ready", true, false},
		{"has(" + x + ") ? " + x + ".ready : true", true, false},
		{"has(object.spec.other) && " + x + ".ready", true, true},
	} {
		r, ok := NewReach(tc.text)
		if !ok {
			t.Errorf("%s: does not parse", tc.text)
			continue
		}
		// The last place with the field needs it.
		at := Place{1, strings.LastIndex(tc.text, ".template") + 1}
		if tests := r.Tests(at); tests != Needs {
			t.Errorf("%s: the place %v tests %v", tc.text, at, tests)
		}
		missing := map[Place]bool{}
		if asked := strings.Index(tc.text, "has("+x+")"); tc.missing && asked >= 0 {
			place := Place{1, asked + len("has") + 1}
			if tests := r.Tests(place); tests != Asks {
				t.Errorf("%s: the place %v tests %v", tc.text, place, tests)
			}
			missing[place] = true
		}
		if got := r.For(t.Context(), pod, missing)[at]; got != tc.want {
			t.Errorf("%s: reached: %v, want %v", tc.text, got, tc.want)
		}
	}
	if r, ok := NewReach("object.?spec.?template.hasValue()"); !ok || r.Tests(Place{1, 14}) != Spares && r.Tests(Place{1, 13}) != Spares {
		t.Errorf("object.?spec.?template needs the field")
	}
	if _, ok := NewReach("object.("); ok {
		t.Error("what is no expression was parsed")
	}
}
