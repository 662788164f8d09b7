package mutation_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// patched applies the JSON patch of an expression to an object, as JSON.
func patched(t *testing.T, expression, object string) (string, error) {
	t.Helper()
	change, err := evaluate(mutation.JSONPatch, expression, content(t, object))
	if err != nil {
		return "", err
	}
	out, _, err := change.Patch.ApplyToMap(t.Context(), nil, content(t, object))
	if errors.Is(err, review.ErrTestFailed) {
		return object, nil
	}
	if err != nil {
		return "", mutation.PatchError([]byte(object), change.Patch, err)
	}
	data, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), nil
}

func TestPatch(t *testing.T) {
	const object = `{"l":["a","b"],"m":{"k":"v"},"n":3,"o":[{"name":"x"}]}`
	for _, tt := range []struct {
		name, expression string
		// want is a JSON merge patch.
		want, err string
	}{
		{name: "S18.17 scalars", expression: `[
			JSONPatch{op: "add", path: "/m/s", value: "text"}, JSONPatch{op: "add", path: "/m/b", value: true},
			JSONPatch{op: "replace", path: "/n", value: 4}, JSONPatch{op: "add", path: "/m/d", value: 1.5},
			JSONPatch{op: "add", path: "/m/u", value: 7u}]`,
			want: `{"m":{"k":"v","s":"text","b":true,"d":1.5,"u":7},"n":4}`},
		{name: "S18.17 lists and maps", expression: `[
			JSONPatch{op: "add", path: "/x", value: [1, 2]}, JSONPatch{op: "replace", path: "/m", value: {"a": "b"}}]`,
			want: `{"x":[1,2],"m":{"k":null,"a":"b"}}`},
		{name: "S18.17 an Object", expression: `[JSONPatch{op: "add", path: "/o/-", value: Object.o{name: "y", ports: [Object.o.ports{port: 80}]}}]`,
			want: `{"o":[{"name":"x"},{"name":"y","ports":[{"port":80}]}]}`},
		{name: "S18.17 parts of the object and literals", expression: `[JSONPatch{op: "replace", path: "/o", value: object.o + [Object.o{name: "z"}]}]`,
			want: `{"o":[{"name":"x"},{"name":"z"}]}`},
		{name: "S18.17 no operation", expression: `object.n > 5 ? [JSONPatch{op: "remove", path: "/n"}] : []`},
		{name: "S18.17 move and copy", expression: `[JSONPatch{op: "move", from: "/n", path: "/p"}, JSONPatch{op: "copy", from: "/l/0", path: "/l/-"}]`,
			want: `{"n":null,"p":3,"l":["a","b","a"]}`},
		{name: "S18.17 escaped keys", expression: `[JSONPatch{op: "add", path: "/m/" + jsonpatch.escapeKey("example.com/a~b"), value: "x"}]`,
			want: `{"m":{"example.com/a~b":"x"}}`},
		{name: "S18.17 the names of an Object's types", expression: `[JSONPatch{op: "add", path: "/x", value: Object.x{y: Object.x.z{}}}]`,
			err: `type mismatch: unexpected type name "Object.x.z", expected "Object.x.y", which matches field name path from root Object type`},
		{name: "S18.17 an Object's own name is not compared with the path", expression: `[JSONPatch{op: "add", path: "/x", value: Object.y.z{a: 1}}]`,
			want: `{"x":{"a":1}}`},
		{name: "S18.17 a value may be null", expression: `[JSONPatch{op: "replace", path: "/m/k", value: null}]`, want: `{"m":{"k":"NULL"}}`},
		{name: "S18.17 a missing value is null", expression: `[JSONPatch{op: "add", path: "/m/k"}]`, want: `{"m":{"k":"NULL"}}`},
		{name: "S18.17 not a list of JSONPatch", expression: `["x"]`, err: "must evaluate to list(JSONPatch) but got list(string)"},
		{name: "S18.17 a value that JSON has no spelling for", expression: `[JSONPatch{op: "add", path: "/x", value: 1.0 / 0.0}]`,
			err: "JSONPath valueExpression evaluated to a type that could not marshal to JSON: "},
		{name: "S18.18 an operation that there is none of", expression: `[JSONPatch{op: "merge", path: "/x", value: 1}]`,
			err: "JSON Patch: Unexpected kind: merge"},
		{name: "S18.18 remove of nothing", expression: `[JSONPatch{op: "remove", path: "/x"}]`,
			err: "JSON Patch: error in remove for path: '/x': Unable to remove nonexistent key: x: missing value"},
		{name: "S18.18 replace at the end of a list", expression: `[JSONPatch{op: "replace", path: "/l/-", value: "c"}]`,
			err: "JSON Patch: replace operation does not apply: doc is missing key: /l/-: missing value"},
		{name: "S18.18 no path", expression: `[JSONPatch{op: "add", value: 1}]`,
			err: "JSON Patch: add operation does not apply: doc is missing path: "},
		{name: "S18.18 no from", expression: `[JSONPatch{op: "move", path: "/x"}]`, err: "JSON Patch: move operation failed to decode from: "},
		{name: "S18.18 a path with what Go writes and JSON cannot read", expression: `[JSONPatch{op: "add", path: "/\a", value: 1}]`,
			err: "JSON Patch: add operation failed to decode path: "},
		{name: "S18.18 a path with other letters", expression: `[JSONPatch{op: "add", path: "/ключ\n\"", value: 1}]`, want: `{"ключ\n\"":1}`},
		{name: "S18.18 before a failing test", expression: `[JSONPatch{op: "remove", path: "/x"}, JSONPatch{op: "test", path: "/n", value: 4}]`,
			err: "JSON Patch: error in remove for path: '/x'"},
		{name: "S18.19 a false test drops the whole patch", expression: `[JSONPatch{op: "add", path: "/x", value: 1}, JSONPatch{op: "test", path: "/n", value: 4}]`},
		{name: "S18.19 a test of a missing member is false", expression: `[JSONPatch{op: "add", path: "/x", value: 1}, JSONPatch{op: "test", path: "/m/missing", value: "v"}]`},
		{name: "S18.19 a test below a missing member", expression: `[JSONPatch{op: "test", path: "/missing/member", value: "v"}]`,
			err: "JSON Patch: test operation does not apply: is missing path: /missing/member"},
		{name: "S18.19 a true test", expression: `[JSONPatch{op: "test", path: "/n", value: 3}, JSONPatch{op: "add", path: "/x", value: 1}]`, want: `{"x":1}`},
		{name: "S18.21 integers that not all readers of JSON know are strings", expression: `[
			JSONPatch{op: "add", path: "/x", value: 9007199254740991}, JSONPatch{op: "add", path: "/y", value: 9007199254740992},
			JSONPatch{op: "add", path: "/z", value: [-9007199254740992]}]`,
			want: `{"x":9007199254740991,"y":"9007199254740992","z":["-9007199254740992"]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := patched(t, tt.expression, object)
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
					t.Errorf("got error %v\nwant %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := merged(t, object, tt.want)
			if m := want["m"].(map[string]any); m["k"] == "NULL" {
				m["k"] = nil
			}
			if diff := cmp.Diff(want, content(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The JSON form of a change in a trace.
func TestChangesAreShownAsJSON(t *testing.T) {
	for _, tt := range []struct {
		mutation   mutation.Type
		expression string
		want       string
	}{
		{mutation.ApplyConfiguration, `Object{spec: Object.spec{replicas: 2, l: ["x"]}, metadata: Object.metadata{labels: {"a/b": "c"}}, status: Object.status{}}`, `[{"op":"merge","path":"/metadata/labels/a~1b","value":"c"},{"op":"merge","path":"/spec/l","value":["x"]},{"op":"merge","path":"/spec/replicas","value":2},{"op":"merge","path":"/status","value":{}}]`},
		{mutation.JSONPatch, `false ? [JSONPatch{}] : []`, `[]`},
		{mutation.JSONPatch, `[JSONPatch{op: "add", path: "/a"}, JSONPatch{op: "remove", path: "/b", value: 1}, JSONPatch{op: "copy", from: "/c", path: ""}]`,
			`[{"op":"add","path":"/a","value":null},{"op":"remove","path":"/b"},{"op":"copy","path":"","from":"/c"}]`},
	} {
		change, err := evaluate(tt.mutation, tt.expression, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(change)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: got %s, %v", tt.expression, got, err)
		}
	}
}

// FuzzValue: JSON preserves the value of any operation, without a panic.
func FuzzValue(f *testing.F) {
	f.Add("text", int64(1), 1.5, true)
	f.Add("\u2028<&>\x00\xff", int64(math.MinInt64), math.Inf(1), false)
	f.Add("~1/~0", int64(1<<53), 1e21, true)
	f.Fuzz(func(t *testing.T, s string, i int64, d float64, b bool) {
		object := map[string]any{"s": s, "i": i, "d": d, "b": b}
		change, err := evaluate(mutation.JSONPatch, `[JSONPatch{op: "add", path: "/" + jsonpatch.escapeKey(object.s), value: object.s}]`, object)
		if err == nil && change.Patch[0].HasPath {
			if out, _, err := change.Patch.ApplyToMap(t.Context(), nil, map[string]any{}); err != nil || out[s] != s {
				t.Fatalf("%q gives %v, %v", s, out, err)
			}
		}
		for _, expression := range []string{
			`[JSONPatch{op: "add", path: object.s, value: object.i}]`,
			`[JSONPatch{op: object.s, path: "/x", value: object.d}]`,
			`[JSONPatch{op: "add", path: "/x", value: object}]`,
			`[JSONPatch{op: "move", path: "/x", from: object.s}]`,
			`[JSONPatch{op: "add", path: "/x", value: Object.x{s: object.s, l: [object.i], m: {"a": object.b}}}]`,
		} {
			change, err := evaluate(mutation.JSONPatch, expression, object)
			if err != nil {
				continue
			}
			data, err := json.Marshal(change)
			if err != nil {
				t.Fatalf("%s gives %v: %v", expression, change.Patch, err)
			}
			again, err := review.DecodePatch(data)
			if err != nil || len(again) != len(change.Patch) {
				t.Fatalf("%s gives %s: %v", expression, data, err)
			}
			_ = mutation.PatchError([]byte(`{}`), change.Patch, errors.New("cause"))
		}
	})
}

// FuzzMerge: no configuration makes a merge panic or change the object, and a second merge changes
// nothing more.
func FuzzMerge(f *testing.F) {
	for _, c := range []string{
		`{"spec":{"size":2,"sockets":[{"name":"y"}]}}`, `{"spec":{"sockets":[{"name":"x"},{"name":"x"}]}}`, `{"spec":{"sockets":[{}]}}`,
		`{"metadata":{"finalizers":["a","a"]}}`, `{"spec":null}`, `{"spec":[]}`, `{"spec":{"free":{"a":[{"b":[]}]},"anything":{"x":1}}}`,
		`{"metadata":{"labels":{"a":null}}}`, `{"spec":{"parts":{"p":{"whole":{}}}}}`,
	} {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, configuration string) {
		var wanted map[string]any
		if json.Unmarshal([]byte(configuration), &wanted) != nil || wanted == nil {
			t.Skip()
		}
		object := &unstructuredObject{Object: content(t, widgetObject)}
		got, err := mutation.Merge(known, widget, object, content(t, configuration))
		if diff := cmp.Diff(content(t, widgetObject), object.Object); diff != "" {
			t.Fatalf("the object was changed:\n%s", diff)
		}
		if err != nil {
			return
		}
		again, err := mutation.Merge(known, widget, &unstructuredObject{Object: got}, content(t, configuration))
		if err != nil {
			t.Fatalf("the second time: %v", err)
		}
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatalf("the second time (-first +second):\n%s", diff)
		}
	})
}
