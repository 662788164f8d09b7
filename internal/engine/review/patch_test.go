package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

func TestPatch(t *testing.T) {
	const doc = `{"a":{"b":[1,2,{"c":"x"}],"n":null},"l":[],"k/~":"odd","f":1.5}`
	cases := []struct {
		name, patch, want, err string
	}{
		{name: "S4.9 empty list", patch: `[]`, want: doc},
		{name: "S4.9 null", patch: `null`, want: doc},
		{name: "add a member", patch: `[{"op":"add","path":"/a/z","value":{"y":1}}]`, want: `{"a":{"b":[1,2,{"c":"x"}],"n":null,"z":{"y":1}},"l":[],"k/~":"odd","f":1.5}`},
		{name: "add into a list", patch: `[{"op":"add","path":"/a/b/1","value":9}]`, want: `{"a":{"b":[1,9,2,{"c":"x"}],"n":null},"l":[],"k/~":"odd","f":1.5}`},
		{name: "add at the end", patch: `[{"op":"add","path":"/l/-","value":9},{"op":"add","path":"/l/1","value":8}]`, want: `{"a":{"b":[1,2,{"c":"x"}],"n":null},"l":[9,8],"k/~":"odd","f":1.5}`},
		{name: "S5.7 negative index of add counts from behind the end", patch: `[{"op":"add","path":"/a/b/-1","value":9}]`, want: `{"a":{"b":[1,2,{"c":"x"},9],"n":null},"l":[],"k/~":"odd","f":1.5}`},
		{name: "S5.7 negative index", patch: `[{"op":"replace","path":"/a/b/-1/c","value":"y"},{"op":"remove","path":"/a/b/-3"}]`, want: `{"a":{"b":[2,{"c":"y"}],"n":null},"l":[],"k/~":"odd","f":1.5}`},
		{name: "escapes", patch: `[{"op":"replace","path":"/k~1~0","value":"even"}]`, want: `{"a":{"b":[1,2,{"c":"x"}],"n":null},"l":[],"k/~":"even","f":1.5}`},
		{name: "move and copy", patch: `[{"op":"move","from":"/a/b/2","path":"/m"},{"op":"copy","from":"/m","path":"/l/0"},{"op":"replace","path":"/m/c","value":"y"}]`,
			want: `{"a":{"b":[1,2],"n":null},"l":[{"c":"x"}],"k/~":"odd","f":1.5,"m":{"c":"y"}}`},
		{name: "test passes", patch: `[{"op":"test","path":"/a","value":{"n":null,"b":[1,2,{"c":"x"}]}},{"op":"test","path":"/nope","value":null},{"op":"test","path":"/f","value":1.5}]`, want: doc},
		{name: "test compares numbers by value", patch: `[{"op":"test","path":"/a/b/0","value":1.0}]`, want: doc},
		{name: "replace adds a missing member", patch: `[{"op":"replace","path":"/new","value":true}]`, want: `{"a":{"b":[1,2,{"c":"x"}],"n":null},"l":[],"k/~":"odd","f":1.5,"new":true}`},
		{name: "the whole document", patch: `[{"op":"replace","path":"","value":{"only":1}},{"op":"test","path":"","value":{"only":1}}]`, want: `{"only":1}`},

		{name: "S4.10 no list", patch: `{"op":"add"}`, err: "cannot unmarshal object"},
		{name: "S4.10 no objects", patch: `["add"]`, err: "cannot unmarshal string"},
		{name: "S5.7 add needs an existing parent", patch: `[{"op":"add","path":"/x","value":1},{"op":"add","path":"/a/q/z","value":1}]`, err: "operation 2, add /a/q/z: there is no /a/q"},
		{name: "S5.7 remove of a missing path", patch: `[{"op":"remove","path":"/a/q"}]`, err: "operation 1, remove /a/q: there is no /a/q"},
		{name: "S5.6 failing test", patch: `[{"op":"test","path":"/f","value":2}]`, err: "operation 1, test /f: test failed: the value differs"},
		{name: "index out of range", patch: `[{"op":"replace","path":"/a/b/3/c","value":1}]`, err: "operation 1, replace /a/b/3/c: /a/b has 3 elements"},
		{name: "index out of range of add", patch: `[{"op":"add","path":"/l/1","value":1}]`, err: "operation 1, add /l/1: /l has 0 elements"},
		{name: "no index", patch: `[{"op":"remove","path":"/a/b/c"}]`, err: `operation 1, remove /a/b/c: /a/b is an array and "c" is not an index`},
		{name: "through a scalar", patch: `[{"op":"add","path":"/f/x","value":1}]`, err: "operation 1, add /f/x: /f is neither an object nor an array"},
		{name: "through null", patch: `[{"op":"add","path":"/a/n/x","value":1}]`, err: "operation 1, add /a/n/x: there is no /a/n"},
		{name: "into itself", patch: `[{"op":"move","from":"/a","path":"/a/b"}]`, err: "operation 1, move /a to /a/b: there is no /a"},
		{name: "unknown operation", patch: `[{"op":"merge","path":"/a"}]`, err: "operation 1, merge /a: unknown operation"},
		{name: "no path", patch: `[{"op":"add","path":7,"value":1}]`, err: "operation 1, add: the operation has no path"},
		{name: "no from", patch: `[{"op":"move","path":"/a"}]`, err: "operation 1, move /a: the operation has no from"},
		{name: "no pointer", patch: `[{"op":"add","path":"a","value":1}]`, err: `operation 1, add a: "a" is not a JSON pointer`},
		{name: "the whole document cannot be removed", patch: `[{"op":"remove","path":""}]`, err: "operation 1, remove: the path is empty"},
		{name: "the whole document cannot be a scalar", patch: `[{"op":"replace","path":"","value":1}]`, err: "operation 1, replace: only an object or an array can replace the whole document"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj := content(t, doc)
			got, changed, err := applyPatchToMap(obj, []byte(c.patch))
			gotDoc, errDoc := applyPatch([]byte(doc), []byte(c.patch))
			if diff := cmp.Diff(content(t, doc), obj); diff != "" {
				t.Errorf("the object was changed (-want +got):\n%s", diff)
			}
			if c.err != "" {
				for _, err := range []error{err, errDoc} {
					if err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "json: "), c.err) {
						t.Errorf("got error %v, want %q", err, c.err)
					}
					var p *PatchError
					if strings.HasPrefix(c.err, "operation") != errors.As(err, &p) {
						t.Errorf("%#v: PatchError is for operations", err)
					}
				}
				return
			}
			if err != nil || errDoc != nil {
				t.Fatal(err, errDoc)
			}
			if diff := cmp.Diff(content(t, c.want), got); diff != "" {
				t.Errorf("map (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(content(t, c.want), content(t, string(gotDoc))); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
			if changed != (c.want != doc) {
				t.Errorf("changed is %v", changed)
			}
		})
	}
}

func TestPatchToMapSharesAndCopies(t *testing.T) {
	obj := content(t, `{"metadata":{"labels":{"a":"b"}},"spec":{"list":[{"x":1},{"y":2}]}}`)
	p, err := DecodePatch([]byte(`[{"op":"add","path":"/metadata/labels/c","value":{"v":[1]}},{"op":"copy","from":"/spec","path":"/status"}]`))
	if err != nil {
		t.Fatal(err)
	}
	first, changed, err := p.ApplyToMap(t.Context(), nil, obj)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	first["spec"].(map[string]any)["shared"] = true
	if _, ok := obj["spec"].(map[string]any)["shared"]; !ok {
		t.Error("what the patch did not touch was copied")
	}
	if _, ok := first["status"].(map[string]any)["shared"]; ok {
		t.Error("a copied value is still tied to its source")
	}
	first["metadata"].(map[string]any)["labels"].(map[string]any)["c"].(map[string]any)["v"].([]any)[0] = "spoiled"
	second, _, err := p.ApplyToMap(t.Context(), nil, obj)
	if err != nil {
		t.Fatal(err)
	}
	want := content(t, `{"a":"b","c":{"v":[1]}}`)
	if diff := cmp.Diff(any(want), second["metadata"].(map[string]any)["labels"]); diff != "" {
		t.Errorf("a patch applied twice (-want +got):\n%s", diff)
	}
}

func TestPatchThatChangesNothing(t *testing.T) {
	for name, patch := range map[string]string{
		"S5.5 same value":               `[{"op":"replace","path":"/spec/replicas","value":3}]`,
		"S5.5 same number as a float":   `[{"op":"replace","path":"/spec/replicas","value":3.0}]`,
		"S5.5 there and back":           `[{"op":"add","path":"/x","value":1},{"op":"remove","path":"/x"}]`,
		"S5.5 list rebuilt":             `[{"op":"remove","path":"/spec/list/0"},{"op":"add","path":"/spec/list/0","value":{"a":[null]}}]`,
		"S5.5 the whole document again": `[{"op":"replace","path":"","value":{"spec":{"replicas":3,"list":[{"a":[null]},"z"]}}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			obj := content(t, `{"spec":{"replicas":3,"list":[{"a":[null]},"z"]}}`)
			got, changed, err := applyPatchToMap(obj, []byte(patch))
			if err != nil || changed {
				t.Fatal(changed, err)
			}
			if diff := cmp.Diff(obj, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func content(t testing.TB, doc string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(doc), &m); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	return m
}

// reference applies a patch with the library of kube-apiserver, one operation at a time, so that
// every operation gets a document in plain JSON. ok is false if the library panics or is known to
// differ: see (Patch).edit.
func reference(doc []byte, patch jsonpatch.Patch) (out []byte, err error, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	for i := range patch {
		if doc, err = patch[i : i+1].Apply(doc); err != nil {
			return nil, err, true
		}
	}
	return doc, nil, true
}

// FuzzPatch compares both ways of applying a patch with the library. The patch is first converted
// to the library's own spelling, because its test operation compares spelling.
func FuzzPatch(f *testing.F) {
	doc := `{"a":{"b":[1,2,{"c":"x"}],"n":null},"l":[],"k/~":"odd","f":1.5,"s":"<&>"}`
	for _, p := range []string{
		`[{"op":"add","path":"/a/b/-1","value":[null,{"x":{}}]},{"op":"test","path":"/a/b/3","value":[1]}]`,
		`[{"op":"move","from":"/a/b","path":"/l/0"},{"op":"remove","path":"/l/0/-1"}]`,
		`[{"op":"copy","from":"/zz","path":"/l/-"},{"op":"replace","path":"/l/0","value":{"q":1}},{"op":"add","path":"/l/0/r","value":"s"}]`,
		`[{"op":"copy","from":"/a","path":"/a/b/0"},{"op":"test","path":"/s","value":"<&>"},{"op":"remove","path":"/k~1~0"}]`,
		`[{"op":"replace","path":"","value":[1]},{"op":"add","path":"/0","value":2}]`,
		`[{"op":"add","path":"x/y","value":2},{"op":"add","path":"","value":2}]`,
	} {
		f.Add(doc, p)
	}
	f.Fuzz(func(t *testing.T, doc, patch string) {
		var obj map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(doc), &obj); err != nil || obj == nil {
			t.Skip()
		}
		var wire any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(patch), &wire); err != nil {
			t.Skip()
		}
		plain, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		spelled, err := json.Marshal(wire)
		if err != nil {
			t.Fatal(err)
		}
		theirs, theirDecode := jsonpatch.DecodePatch(spelled)
		ours, ourDecode := DecodePatch(spelled)
		if (theirDecode == nil) != (ourDecode == nil) {
			t.Fatalf("decoding: theirs %v, ours %v", theirDecode, ourDecode)
		}
		if ourDecode != nil {
			return
		}
		before := runtime.DeepCopyJSON(obj)
		got, changed, ourErr := ours.ApplyToMap(t.Context(), nil, obj)
		gotDoc, docErr := ours.Apply(plain)
		if diff := cmp.Diff(before, obj); diff != "" {
			t.Fatalf("the object was changed (-want +got):\n%s", diff)
		}
		want, theirErr, comparable := reference(plain, theirs)
		if !comparable {
			return
		}
		if (theirErr == nil) != (docErr == nil) {
			t.Fatalf("applying %s to %s: theirs %v, ours %v", spelled, plain, theirErr, docErr)
		}
		if docErr != nil {
			if ourErr == nil {
				t.Fatalf("only the map took %s", spelled)
			}
			return
		}
		if text(t, want) != text(t, gotDoc) {
			t.Fatalf("applying %s to %s: theirs %s, ours %s", spelled, plain, want, gotDoc)
		}
		if want[0] != '{' {
			if !errors.Is(ourErr, errNotObject) {
				t.Fatalf("a map became %s with error %v", want, ourErr)
			}
			return
		}
		if ourErr != nil {
			t.Fatal(ourErr)
		}
		gotText, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if text(t, want) != string(gotText) {
			t.Fatalf("applying %s to %s: theirs %s, ours %s", spelled, plain, want, gotText)
		}
		if changed == (text(t, plain) == string(gotText)) {
			t.Fatalf("changed is %v from %s to %s", changed, plain, gotText)
		}
	})
}

// text decodes and encodes an object like the API server.
func text(t *testing.T, doc []byte) string {
	t.Helper()
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &v); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// sidecar returns the patch of a webhook that adds a container, and an object of about 100 KB, half
// of it in many small members.
func sidecar(tb testing.TB) (doc, patch []byte) {
	containers := make([]any, 20)
	for i := range containers {
		env := make([]any, 40)
		for j := range env {
			env[j] = map[string]any{"name": fmt.Sprintf("VARIABLE_%d", j), "value": strings.Repeat("v", 20)}
		}
		containers[i] = map[string]any{"name": fmt.Sprintf("c%d", i), "image": "registry.example.com/app:1", "env": env}
	}
	obj := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "web", "labels": map[string]any{"app": "web"}, "annotations": map[string]any{"blob": strings.Repeat("x", 50_000)}},
		"spec":     map[string]any{"containers": containers},
	}
	doc, err := json.Marshal(obj)
	if err != nil {
		tb.Fatal(err)
	}
	return doc, []byte(`[{"op":"add","path":"/metadata/labels/injected","value":"true"},
		{"op":"add","path":"/spec/containers/-","value":{"name":"proxy","image":"proxy:1","env":[{"name":"A","value":"B"}]}},
		{"op":"replace","path":"/spec/containers/3/image","value":"mirror.example.com/app:1"}]`)
}

// BenchmarkPatch compares the ways to patch an object of 100 KB that the server holds as a map. The
// time of the library includes encoding and decoding, which it requires.
func BenchmarkPatch(b *testing.B) {
	doc, patch := sidecar(b)
	obj := content(b, string(doc))
	b.Run("map", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, changed, err := applyPatchToMap(obj, patch); err != nil || !changed {
				b.Fatal(err)
			}
		}
	})
	b.Run("document", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := applyPatch(doc, patch); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library-document", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p, err := jsonpatch.DecodePatch(patch)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Apply(doc); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library-map", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			in, err := json.Marshal(obj)
			if err != nil {
				b.Fatal(err)
			}
			p, err := jsonpatch.DecodePatch(patch)
			if err != nil {
				b.Fatal(err)
			}
			out, err := p.Apply(in)
			if err != nil {
				b.Fatal(err)
			}
			var m map[string]any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(out, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// applyPatch decodes a patch and applies it to a document.
func applyPatch(doc, patch []byte) ([]byte, error) {
	p, err := DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	return p.Apply(doc)
}

// applyPatchToMap decodes a patch and applies it to an object.
func applyPatchToMap(obj map[string]any, patch []byte) (patched map[string]any, changed bool, err error) {
	p, err := DecodePatch(patch)
	if err != nil {
		return nil, false, err
	}
	return p.ApplyToMap(context.Background(), nil, obj)
}
