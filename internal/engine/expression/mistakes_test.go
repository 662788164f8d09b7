package expression

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

var (
	podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	jobKind = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
)

// typedKinds are a pod, whose spec has node and names, and a job, whose spec has count.
func typedKinds(t *testing.T) map[schema.GroupVersionKind]*Typed {
	t.Helper()
	object := func(fields map[string]spec.Schema) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: fields}}
	}
	meta := object(map[string]spec.Schema{"name": *spec.StringProperty(), "labels": *spec.MapProperty(spec.StringProperty())})
	quantity := spec.Schema{}
	quantity.AddExtension("x-kubernetes-int-or-string", true)
	made := map[schema.GroupVersionKind]*Typed{}
	for kind, s := range map[schema.GroupVersionKind]spec.Schema{
		podKind: object(map[string]spec.Schema{"metadata": meta, "spec": object(map[string]spec.Schema{
			"node": *spec.StringProperty(), "names": *spec.ArrayProperty(spec.StringProperty()), "size": quantity,
		})}),
		jobKind: object(map[string]spec.Schema{"metadata": meta, "spec": object(map[string]spec.Schema{"count": *spec.Int64Property()})}),
	} {
		typed, err := NewTyped(Shapes{Object: ShapeOf(&s, kind.Kind), Authorizer: true, Patches: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		made[kind] = typed
	}
	return made
}

// A mistake makes an evaluation fail, or is a test that no kind passes; it applies to each object
// if every evaluation reaches it (S16.24).
func TestMistakes(t *testing.T) {
	typed := typedKinds(t)
	for _, tc := range []struct {
		text   string
		others bool
		want   string
	}{
		{"object.metadata.name != 'x' && (object.kind != 'Pod' || object.spec.size > 1)", false, ""},
		{"object.metadata.nme != 'x'", false, "Pod always, Job always"},
		{"object.metadata.nme == null", false, "Pod always, Job always"},
		{"has(object.metadata.nme.first)", false, "Pod always, Job always"},
		{"object.spec.node == 'a'", false, "Job always"},
		{"object.kind != 'Pod' || object.spec.node == 'a'", false, ""},
		{"object.kind == 'Pod' ? object.spec.nod == 'a' : true", false, "Pod always"},
		{"object.kind == 'Pod' && object.spec.nod == 'a'", false, "Pod always"},
		{"object.metadata.name == 'x' || object.metadata.nme == 'x'", false, "Pod, Job"},
		{"object.metadata.name == 'x' ? object.metadata.nme == 'x' : true", false, "Pod, Job"},
		{"object.kind != 'Pod' || object.spec.names.all(n, object.spec.nod == n)", false, "Pod"},
		{"object.kind != 'Pod' || object.spec.nams.all(n, n != '')", false, "Pod always"},
		{"!has(object.spec.node) || object.spec.node == 'a'", false, ""},
		{"!has(object.spec.nod)", false, "Pod, Job"},
		{"!has(object.spec.nod)", true, ""},
		{"object.?spec.?nod.orValue('') == ''", false, "Pod, Job"},
		{"object.?spec.nod.orValue('') == ''", false, "Pod, Job"},
		{"object.kind != 'Job' || object.spec.count != null", false, ""},
		{"object.kind != 'Pod' || object.?spec.orValue({}) == object.?spec.orValue({})", false, ""},
		{"object.kind != 'Pod' || object.?spec.?names.orValue({}) == {}", false, ""},
		{"authorizer.requestResource.check('get').allowed()", false, ""},
		{"object.kind != 'Pod' || object.spec.names + [1] == []", false, ""},
	} {
		var got []string
		for _, m := range Mistakes(t.Context(), tc.text, []schema.GroupVersionKind{podKind, jobKind}, typed, tc.others) {
			text := m.Kind.Kind
			if m.Always {
				text += " always"
			}
			if !slices.Contains(got, text) {
				got = append(got, text)
			}
		}
		if text := strings.Join(got, ", "); text != tc.want {
			t.Errorf("%s: %q, want %q", tc.text, text, tc.want)
		}
	}
}

// A null variable fails expressions that always read it, but not expressions that test it first.
func TestUses(t *testing.T) {
	for _, tc := range []struct {
		text          string
		always, whole bool
	}{
		{"params.most > 1", true, false},
		{"object.spec.count <= params.most", true, false},
		{"params['most'] > 1", true, false},
		{"has(params.limits.most)", true, false},
		{"has(params.most)", false, true},
		{"params == null || params.most > 1", false, true},
		{"object.metadata.name == 'x' || params.most > 1", false, false},
		{"object.kind == 'Job' || params.most > 1", true, false},
		{"object.kind == 'Pod' || params.most > 1", false, false},
		{"params.?most.orValue(1) > 1", false, true},
		{"object.spec.names.all(n, n == params.most)", false, false},
		{"true", false, false},
	} {
		r, ok := NewReach(tc.text)
		if !ok {
			t.Errorf("%s: does not parse", tc.text)
			continue
		}
		if u := r.Uses(t.Context(), "params", podKind); u != (Uses{Always: tc.always, Whole: tc.whole}) {
			t.Errorf("%s: %+v", tc.text, u)
		}
	}
}
