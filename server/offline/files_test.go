package offline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/server/offline"
)

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

const hooks = `# two documents, and a list
apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: listed}
  webhooks:
  - name: one.example.com
    clientConfig: {url: "https://example.com/"}
    admissionReviewVersions: [v1]
    sideEffects: None
    rules:
    - {apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
--- # the second one
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: single}
initializers:
- name: two.example.com
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps]}
`

// A step says where its rule is written.
func TestStepsHaveTheirPlaceInFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "hooks.yaml")
	writeFile(t, name, hooks)
	writeFile(t, filepath.Join(dir, "README"), "not YAML: [")
	w, err := offline.Read([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := offline.Objects("c", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.Plan(t.Context(), &offline.Request{
		Operation: "CREATE", Kind: w.Kinds.Of(objects[0].GroupVersionKind()), Namespace: "default", Name: "c", Object: objects[0],
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range p.Steps {
		got = append(got, s.Entry.Name+" "+s.Location.String())
	}
	want := []string{
		"two.example.com " + name + ":23: initializers[0].rules[0]",
		"one.example.com " + name + ":15: webhooks[0].rules[1]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

func TestBadFilesAreNamedWithTheirLine(t *testing.T) {
	valid := "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\nmetadata: {name: a}\n"
	for _, c := range []struct{ name, content, want string }{
		{"no YAML", "a: [", "f.yaml: document at line 1: "},
		{"no YAML in the second document", "---\n---\na: [", "f.yaml: document at line 2: "},
		{"a field twice", "apiVersion: v1\nkind: Namespace\nkind: Pod\n", `key "kind" already set`},
		{"no object", "- a\n", "f.yaml:1: this is not an object"},
		{"no kind", "apiVersion: v1\n", "f.yaml:1: apiVersion and kind are needed"},
		{"an item without a kind", "apiVersion: v1\nkind: List\nitems:\n- {}\n", "f.yaml:4: apiVersion and kind are needed"},
		{"an unknown registration", "\napiVersion: admissionregistration.k8s.io/v9\nkind: InitializerConfiguration\n", "f.yaml:2: admissionregistration.k8s.io/v9, Kind=InitializerConfiguration is not a kind of registration"},
		{"an invalid registration", valid + "initializers: [{name: short}]\n", `f.yaml:1: InitializerConfiguration "a": initializers[0].name: Invalid value`},
		{"the same registration twice", valid + "---\n" + valid, `InitializerConfiguration "a" is at `},
		{"half a definition", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\n", "f.yaml:1: CustomResourceDefinition \"x\": spec.group"},
	} {
		name := filepath.Join(t.TempDir(), "f.yaml")
		writeFile(t, name, c.content)
		if _, err := offline.Read([]string{name}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := offline.Read([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "has no .yaml") {
		t.Errorf("an empty directory: %v", err)
	}
}
