package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// A kustomization changes the objects that it builds on and that its patches name, unless a patch only
// changes metadata. The annotations that it sets are recorded. An object with the same name in other files
// is a different object.
func TestPatchesChangeObjects(t *testing.T) {
	const base = "resources: [hook.yaml]\n"
	for _, tc := range []struct {
		name, kustomization, more string
		changes                   bool
	}{
		{"a patch in the file", "resources: [../base]\npatches: [{patch: '{kind: Hook, metadata: {name: a}, spec: {}}'}]\n", "", true},
		{"a patch of another file", "resources: [../base]\npatches: [{path: p.yaml}]\n", "kind: Hook\nmetadata: {name: a}\nspec: {}\n", true},
		{"a patch with a longer name", "namePrefix: my-\nresources: [../base]\npatchesStrategicMerge: [p.yaml]\n", "kind: Hook\nmetadata: {name: my-a}\nspec: {}\n", true},
		{"a patch of all of a kind", "resources: [../base]\npatches: [{path: p.yaml, target: {kind: Hook}}]\n", "[{op: add, path: /spec/a, value: 1}]\n", true},
		{"a replacement", "resources: [../base]\nreplacements: [{targets: [{select: {kind: Hook, name: a}}]}]\n", "", true},
		{"a base in the old way", "bases: [../base]\npatchesStrategicMerge: ['{kind: Hook, metadata: {name: a},\n\n spec: {}}']\n", "", true},
		{"a patch of annotations", "resources: [../base]\npatches: [{path: p.yaml}]\n", "kind: Hook\nmetadata: {name: a, annotations: {b: c}}\n", false},
		{"operations on annotations", "resources: [../base]\npatches: [{path: p.yaml, target: {kind: Hook}}]\n", "[{op: add, path: /metadata/annotations, value: {b: c}}]\n", false},
		{"an operation on an annotation", "resources: [../base]\npatches: [{path: p.yaml, target: {kind: Hook, name: a}}]\n", "[{op: replace, path: /metadata/name, value: x}, {op: add, path: /metadata/annotations/b, value: c}]\n", false},
		{"a target with a regular expression", "resources: [../base]\npatches: [{path: p.yaml, target: {kind: Ho.*, name: a|z}}]\n", "[{op: add, path: /spec/a, value: 1}]\n", true},
		{"a target by label", "resources: [../base]\npatches: [{path: p.yaml, target: {labelSelector: x=one}}]\n", "[{op: add, path: /spec/a, value: 1}]\n", true},
		{"a target with another label", "resources: [../base]\npatches: [{path: p.yaml, target: {kind: Hook, labelSelector: x=two}}]\n", "[{op: add, path: /spec/a, value: 1}]\n", false},
		{"a target of another version", "resources: [../base]\npatches: [{path: p.yaml, target: {version: v2}}]\n", "[{op: add, path: /spec/a, value: 1}]\n", false},
		{"a replacement in another namespace", "resources: [../base]\nreplacements: [{targets: [{select: {namespace: x}}]}]\n", "", false},
		{"annotations of all objects", "resources: [../base]\ncommonAnnotations: {b: c}\n", "# b: {b: c}\n", false},
		{"a patch of another object", "resources: [../base]\npatches: [{path: p.yaml}]\n", "kind: Hook\nmetadata: {name: b}\nspec: {}\n", false},
		{"another base", "resources: [../other]\npatches: [{path: p.yaml}]\n", "kind: Hook\nmetadata: {name: a}\nspec: {}\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := readFiles(t, map[string]string{
				"base/kustomization.yaml": base, "base/hook.yaml": "apiVersion: v1\nkind: Hook\nmetadata: {name: a, labels: {x: one}}\n",
				"over/kustomization.yaml": tc.kustomization, "over/p.yaml": tc.more,
			}, &manifests.Ignore{})
			var hook *manifests.Object
			for _, o := range set.Objects {
				if o.Content["kind"] == "Hook" && filepath.Base(o.File) == "hook.yaml" {
					hook = o
				}
			}
			changes, annotated := false, ""
			for i := range set.Patched {
				if p := &set.Patched[i]; p.Changes(hook) {
					changes = changes || p.Annotations == nil
					annotated += p.Annotations["b"]
				}
			}
			if want := strings.Contains(tc.more, "b: c}") || strings.Contains(tc.more, "/b, value: c"); changes != tc.changes || (annotated == "c") != want {
				t.Errorf("changes: %v, want %v, annotated: %q: %+v", changes, tc.changes, annotated, set.Patched)
			}
		})
	}
}

// On request, files for tests below a directory are omitted, and listed in one note.
func TestWhatIsForTestsIsLeftOut(t *testing.T) {
	files := map[string]string{}
	for _, name := range []string{"deploy/a", "deploy/tests/a", "pkg/testdata/a", "pkg/testdata/deep/a", "pkg/test-resources/a", "contest/test", "hack/kind-e2e"} {
		files[name+".yaml"] = "apiVersion: v1\nkind: A\n"
	}
	if set := readFiles(t, files, &manifests.Ignore{}); len(set.Objects) != 7 || len(set.Notes) > 0 {
		t.Errorf("%d objects, %v", len(set.Objects), set.Notes)
	}
	set := readFiles(t, files, &manifests.Ignore{Tests: true})
	if len(set.Objects) != 2 || len(set.Notes) != 1 || !strings.HasSuffix(set.Notes[0].File, filepath.FromSlash("deploy/tests")) || !strings.Contains(set.Notes[0].Message, "in 4 places") {
		t.Errorf("%d objects, %v", len(set.Objects), set.Notes)
	}
}

func readFiles(t *testing.T, files map[string]string, ignore *manifests.Ignore) *manifests.Set {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := manifests.ReadBut(ignore, []string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
