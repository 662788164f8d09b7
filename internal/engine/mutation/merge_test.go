package mutation_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
)

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"},"finalizers":["a/a"],
	"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]},
	"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"web","image":"web:1","env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]}]}}}}`

const widgetObject = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},
	"spec":{"size":1,"name":"a","sockets":[{"name":"x","port":1}],"parts":{"p":{"count":1,"whole":{"a":"1","b":"2"}}},"free":{"l":["1"],"n":{"m":"1"}}}}`

func TestMerge(t *testing.T) {
	for _, tt := range []struct {
		name, object, expression string
		// want is a JSON merge patch from the object to the result; empty: no change.
		want string
		err  string
	}{
		{
			name: "S18.14 fields are added and replaced", object: deployment,
			expression: `Object{metadata: Object.metadata{labels: {"team": "red"}}, spec: Object.spec{replicas: object.spec.replicas + 1, paused: true}}`,
			want:       `{"metadata":{"labels":{"team":"red"}},"spec":{"replicas":2,"paused":true}}`,
		},
		{
			name: "S18.14 items of a list with keys are merged by them", object: deployment,
			expression: `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [
				Object.spec.template.spec.containers{name: "web", image: "web:2"},
				Object.spec.template.spec.containers{name: "sidecar", image: "proxy:1"}]}}}}`,
			want: `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2","env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]},{"name":"sidecar","image":"proxy:1"}]}}}}`,
		},
		{
			name: "S18.14 a set is united", object: deployment,
			expression: `Object{metadata: Object.metadata{finalizers: ["b/b", "a/a"]}}`,
			want:       `{"metadata":{"finalizers":["b/b","a/a"]}}`,
		},
		{
			name: "S18.14 duplicates in the live object are tolerated, and one when they are touched", object: deployment,
			expression: `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [
				Object.spec.template.spec.containers{name: "web", env: [Object.spec.template.spec.containers.env{name: "A", value: "3"}]}]}}}}`,
			want: `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:1","env":[{"name":"A","value":"3"}]}]}}}}`,
		},
		{
			name: "S18.14 what is optional.none() is absent, and nothing is removed", object: deployment,
			expression: `Object{spec: Object.spec{?replicas: optional.none()}}`,
		},
		{name: "S18.14 nothing", object: deployment, expression: `Object{}`},
		{
			name: "S18.12 apiVersion and kind are filled in", object: deployment,
			expression: `Object{apiVersion: "v1", kind: "Other", spec: Object.spec{replicas: 7}}`,
			want:       `{"spec":{"replicas":7}}`,
		},
		{
			name: "S18.13 unknown field", object: deployment,
			expression: `Object{spec: Object.spec{replicasx: 1}}`,
			err:        "error applying patch: failed to convert patch object to typed object: .spec.replicasx: field not declared in schema",
		},
		{
			name: "S18.11 wrong type name", object: deployment,
			expression: `Object{spec: Object.specx{replicas: 1}}`,
			err:        `type mismatch: unexpected type name "Object.specx", expected "Object.spec", which matches field name path from root Object type`,
		},
		{
			name: "S18.11 several wrong type names, always in the same order", object: deployment,
			expression: `Object{spec: Object.specx{}, status: Object.statusx{}, metadata: Object.a.b{}}`,
			err: `type mismatch: unexpected type name "Object.a.b", expected "Object.metadata", which matches field name path from root Object type` + "\n" +
				`unexpected type name "Object.specx", expected "Object.spec", which matches field name path from root Object type` + "\n" +
				`unexpected type name "Object.statusx", expected "Object.status", which matches field name path from root Object type`,
		},
		{
			name: "S18.11 levels of lists and maps add nothing", object: widgetObject,
			expression: `Object{spec: Object.spec{parts: {"q": Object.spec.parts{count: 2}}, sockets: [Object.spec.sockets{name: "y"}]}}`,
			want:       `{"spec":{"parts":{"q":{"count":2}},"sockets":[{"name":"x","port":1},{"name":"y"}]}}`,
		},
		{
			name: "S18.11 not an Object", object: deployment, expression: `"a teapot"`,
			err: "must evaluate to Object but got string",
		},
		{
			name: "S18.11 a part of an Object", object: deployment, expression: `Object.spec.metadata{}`,
			err: "must evaluate to Object but got Object.spec.metadata",
		},
		{
			name: "S18.15 an atomic struct", object: deployment,
			expression: `Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {"l": "v"}}}}`,
			err:        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector",
		},
		{
			name: "S18.15 a list without keys is atomic, also with equal content and without a schema, and all paths are named", object: widgetObject,
			expression: `Object{spec: Object.spec{plainList: ["x"], anything: ["1"]}}`,
			err:        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.anything, .spec.plainList",
		},
		{
			name: "S18.15 F20 a list further down without a schema is not found", object: widgetObject,
			expression: `Object{spec: Object.spec{free: Object.spec.free{l: ["2"]}}}`,
			want:       `{"spec":{"free":{"l":["2"]}}}`,
		},
		{
			name: "S18.15 F20 atomics below additionalProperties are not found", object: widgetObject,
			expression: `Object{spec: Object.spec{parts: {"p": Object.spec.parts{whole: Object.spec.parts.whole{a: "3"}}}}}`,
			want:       `{"spec":{"parts":{"p":{"whole":{"a":"3","b":null}}}}}`,
		},
		{
			name: "S18.16 null unsets nothing", object: widgetObject,
			expression: `Object{spec: Object.spec{name: null}}`,
			err:        "error applying patch: failed to convert patch object to typed object: .spec.name: expected string, got",
		},
		{
			name: "S18.14 a custom kind", object: widgetObject,
			expression: `Object{spec: Object.spec{size: 3, ratio: 0.5, sockets: [Object.spec.sockets{name: "x", port: 2}]}}`,
			want:       `{"spec":{"size":3,"ratio":0.5,"sockets":[{"name":"x","port":2}]}}`,
		},
		{
			name: "S18.14 what has no schema is as JSON has it", object: widgetObject,
			expression: `Object{spec: Object.spec{free: Object.spec.free{n: Object.spec.free.n{d: 1.5, s: "x"}}}}`,
			want:       `{"spec":{"free":{"n":{"d":1.5,"s":"x"}}}}`,
		},
		{
			name: "S18.13 what JSON has no spelling for", object: widgetObject,
			expression: `Object{spec: Object.spec{ratio: 1.0 / 0.0}}`,
			err:        "error applying patch: failed to convert patch object to typed object: spec: ratio: +Inf is not a number in JSON",
		},
		{
			name: "S18.13 what is not JSON", object: widgetObject,
			expression: `Object{spec: Object.spec{free: Object.spec.free{t: timestamp("2026-01-01T00:00:00Z")}}}`,
			err:        "error applying patch: failed to convert patch object to typed object: .spec.free.t: expected map, got",
		},
		{
			name: "S18.13 a wrong type", object: widgetObject,
			expression: `Object{spec: Object.spec{size: "big"}}`,
			err:        `error applying patch: failed to convert patch object to typed object: .spec.size: expected numeric (int or float), got string`,
		},
		{
			name:       "S18.22 D51 a kind without a schema is an error of the mutation",
			object:     `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"g"}}`,
			expression: `Object{}`,
			err:        "error applying patch: failed to convert patch object to typed object: no corresponding type for example.com/v1, Kind=Gadget",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: content(t, tt.object)}
			kind := object.GroupVersionKind()
			before := object.DeepCopy()
			for form, live := range map[string]runtime.Object{"unstructured": object, "typed": typedOf(t, object)} {
				if live == nil {
					continue
				}
				got, err := mergeOf(tt.expression, kind, live)
				if tt.err != "" {
					if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
						t.Errorf("%s: got error %v\nwant %s", form, err, tt.err)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", form, err)
					continue
				}
				if diff := cmp.Diff(merged(t, tt.object, tt.want), pruned(t, got, form)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", form, diff)
				}
				if diff := cmp.Diff(before, object); diff != "" {
					t.Errorf("%s: the object was changed (-want +got):\n%s", form, diff)
				}
			}
		})
	}
}

// mergeOf merges the configuration of an expression into an object.
func mergeOf(expression string, kind schema.GroupVersionKind, live runtime.Object) (map[string]any, error) {
	seen, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	change, err := evaluate(mutation.ApplyConfiguration, expression, seen)
	if err != nil {
		return nil, err
	}
	return mutation.Merge(known, kind, live, change.Configuration)
}

// typedOf returns a built-in object as its own type; nil for a custom one.
func typedOf(t *testing.T, u *unstructured.Unstructured) runtime.Object {
	t.Helper()
	if !scheme.Scheme.Recognizes(u.GroupVersionKind()) {
		return nil
	}
	object, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// merged applies a JSON merge patch.
func merged(t *testing.T, object, patch string) map[string]any {
	t.Helper()
	out := content(t, object)
	if patch != "" {
		mergePatch(out, content(t, patch))
	}
	return out
}

func mergePatch(into, patch map[string]any) {
	for k, v := range patch {
		below, isMap := v.(map[string]any)
		at, wasMap := into[k].(map[string]any)
		switch {
		case v == nil:
			delete(into, k)
		case isMap && wasMap:
			mergePatch(at, below)
		default:
			into[k] = v
		}
	}
}

// pruned drops the empty fields that the encoding of a typed object adds.
func pruned(t *testing.T, result map[string]any, form string) map[string]any {
	t.Helper()
	data, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	out := content(t, string(data))
	if form == "typed" {
		delete(out, "status")
		delete(out["metadata"].(map[string]any), "creationTimestamp")
		spec := out["spec"].(map[string]any)
		for _, field := range []string{"selector", "strategy"} {
			if v, ok := spec[field].(map[string]any); !ok || len(v) == 0 {
				delete(spec, field)
			}
		}
		template := spec["template"].(map[string]any)
		delete(template, "metadata")
		for _, c := range template["spec"].(map[string]any)["containers"].([]any) {
			delete(c.(map[string]any), "resources")
		}
	}
	return out
}
