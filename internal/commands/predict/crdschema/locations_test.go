package crdschema

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func definition(group, kind, plural string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s}
spec: {group: %[1]s, scope: Cluster, names: {kind: %[2]s, plural: %[3]s}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}
`, group, kind, plural)
}

const jsonSchema = `{"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}, "additionalProperties": false}}}`

// save writes a file below a directory.
func save(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func tarball(t *testing.T, path string, files map[string]string) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(f)
	w := tar.NewWriter(packed)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), packed.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func zipFile(t *testing.T, path string, files map[string]string) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for name, text := range files {
		one, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(one, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// find returns the found kinds: a CRD by its resource, and a guess by its place.
func find(t *testing.T, locations []string, kinds ...string) (list []string) {
	t.Helper()
	l, err := Open(locations, "1.37.2")
	if err != nil {
		t.Fatal(err)
	}
	var asked []schema.GroupVersionKind
	for _, kind := range kinds {
		version, name, _ := strings.Cut(kind, " ")
		asked = append(asked, schema.FromAPIVersionAndKind(version, name))
	}
	found, err := l.Find(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	guessed := map[schema.GroupKind]bool{}
	for _, g := range found.Guessed {
		guessed[g.Kind] = true
		list = append(list, "guess "+g.Plural)
	}
	for _, u := range found.Definitions {
		scope, _, _ := unstructured.NestedString(u.Object, "spec", "scope")
		list = append(list, u.GetName()+" "+scope)
	}
	return append(list, found.Notes...)
}

// Locations have the values of kubeconform's flag, and CRDs in folders, files and archives. A CRD is preferred to a
// schema, and the first location to a later one.
func TestLocations(t *testing.T) {
	dir := t.TempDir()
	both := definition("example.com", "Widget", "widgetry") + "---\n" + definition("example.com", "Gadget", "gadgets")
	save(t, dir, "crds/a/all.yaml", both)
	save(t, dir, "crds/README.md", "no manifest")
	file := save(t, dir, "one.yaml", definition("example.com", "Widget", "others"))
	list := save(t, dir, "snapshot.yaml", "apiVersion: gatehouse.dev/v1alpha1\nkind: ClusterSnapshot\nitems:\n- "+strings.ReplaceAll(definition("example.com", "Widget", "saved"), "\n", "\n  "))
	packed := tarball(t, filepath.Join(dir, "crds.tgz"), map[string]string{"x/crds/all.yaml": both, "x/values.yaml": "a: b", "x/README.md": "text"})
	zipped := zipFile(t, filepath.Join(dir, "crds.zip"), map[string]string{"crds/all.yml": both})
	save(t, dir, "schemas/example.com/widget_v1.json", jsonSchema)
	save(t, dir, "schemas/example.com/clusterwidget_v1.json", jsonSchema)
	save(t, dir, "tree/v1.37.2-standalone-strict/widget-example-v1.json", jsonSchema)
	save(t, dir, "tree/all/widget-example-v1.json", jsonSchema)
	save(t, dir, "secret/widget_v1.json", jsonSchema)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	schemas := filepath.Join(dir, "schemas", "{{.Group}}", "{{.ResourceKind}}_{{.ResourceAPIVersion}}.json")
	for name, tc := range map[string]struct {
		locations []string
		kinds     []string
		want      []string
	}{
		"default":                        {[]string{"default"}, []string{"example.com/v1 Widget"}, nil},
		"a folder of CRDs":               {[]string{filepath.Join(dir, "crds")}, []string{"example.com/v1 Widget", "example.com/v2 Gadget", "example.org/v1 Widget"}, []string{"widgetry.example.com Cluster", "gadgets.example.com Cluster"}},
		"a file":                         {[]string{file}, []string{"example.com/v1 Widget"}, []string{"others.example.com Cluster"}},
		"a snapshot":                     {[]string{list}, []string{"example.com/v1 Widget"}, []string{"saved.example.com Cluster"}},
		"a tar archive":                  {[]string{packed}, []string{"example.com/v1 Gadget"}, []string{"gadgets.example.com Cluster"}},
		"a zip archive":                  {[]string{zipped}, []string{"example.com/v1 Gadget"}, []string{"gadgets.example.com Cluster"}},
		"the first location":             {[]string{"default", file, packed}, []string{"example.com/v1 Widget"}, []string{"others.example.com Cluster"}},
		"schemas by a template":          {[]string{schemas}, []string{"example.com/v1 Widget", "example.com/v1 Gadget"}, []string{"guess widgets", "widgets.example.com Namespaced"}},
		"a kind of the cluster":          {[]string{schemas}, []string{"example.com/v1 ClusterWidget"}, []string{"guess clusterwidgets", "clusterwidgets.example.com Cluster"}},
		"a CRD instead of a schema":      {[]string{schemas, file}, []string{"example.com/v1 Widget"}, []string{"others.example.com Cluster"}},
		"schemas in the usual folder":    {[]string{filepath.Join(dir, "tree")}, []string{"example.com/v1 Widget"}, []string{"guess widgets", "widgets.example.com Namespaced"}},
		"with the other variables":       {[]string{filepath.Join(dir, "tree", "all", "{{ .ResourceKind }}{{ .KindSuffix }}.json")}, []string{"example.com/v1 Widget"}, []string{"guess widgets", "widgets.example.com Namespaced"}},
		"schemas by HTTP":                {[]string{server.URL + "/schemas/{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json"}, []string{"example.com/v1 Widget", "example.com/v1 Gadget"}, []string{"guess widgets", "widgets.example.com Namespaced"}},
		"a server with the usual folder": {[]string{server.URL + "/tree"}, []string{"example.com/v1 Widget"}, []string{"guess widgets", "widgets.example.com Namespaced"}},
		"kinds that are no names":        {[]string{filepath.Join(dir, "schemas", "{{.ResourceKind}}_{{.ResourceAPIVersion}}.json")}, []string{"example.com/v1 ../../secret/widget", "example.com/../../secret Widget"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, find(t, tc.locations, tc.kinds...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, value := range map[string]string{
		"a path that is not there": filepath.Join(dir, "none"), "a template that is none": "schemas/{{.ResourceKind}.json", "another variable": "schemas/{{.Name}}.json",
		"a file without a CRD": save(t, dir, "other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), "an archive without a CRD": tarball(t, filepath.Join(dir, "empty.tgz"), nil),
	} {
		if _, err := Open([]string{value}, "1.37.2"); err == nil || !strings.HasPrefix(err.Error(), value+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Fetches have limits: of size, number and redirects, and no redirect leads to an address that is not public, except on
// the host of the location.
func TestFetchesAreLimited(t *testing.T) {
	var elsewhere string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/schema", http.StatusFound)
		case "/elsewhere":
			http.Redirect(w, r, elsewhere, http.StatusFound)
		case "/by-name":
			http.Redirect(w, r, strings.Replace(elsewhere, "127.0.0.1", "localhost", 1), http.StatusMovedPermanently)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/credentials":
			http.Redirect(w, r, "http://u:p@"+r.Host+"/schema", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/large":
			_, _ = w.Write(make([]byte, maxSchema+1))
		case "/forbidden":
			w.WriteHeader(http.StatusForbidden)
		case "/schema":
			_, _ = io.WriteString(w, jsonSchema)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another host was asked") }))
	defer other.Close()
	elsewhere = other.URL
	for path, want := range map[string]string{
		"/schema": "", "/here": "", "/elsewhere": errPrivate.Error(), "/by-name": errPrivate.Error(), "/file": "a schema is fetched by https", "/credentials": "a redirect with credentials is not followed",
		"/loop": "more than 5 redirects", "/large": "more than 8 MiB", "/forbidden": "the server answered 403",
	} {
		data, err := newFetcher().get(t.Context(), server.URL+path)
		switch {
		case want == "" && (err != nil || string(data) != jsonSchema):
			t.Errorf("%s: %v", path, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if _, err := newFetcher().get(t.Context(), server.URL+"/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a schema that is not there: %v", err)
	}
	if _, err := newFetcher().get(t.Context(), strings.Replace(server.URL, "http://", "http://user:password@", 1)+"/forbidden"); err == nil || strings.Contains(err.Error(), "password") {
		t.Errorf("a location with a password: %v", err)
	}
	f := newFetcher()
	f.fetched = maxFetches
	if _, err := f.get(t.Context(), server.URL+"/schema"); err == nil || !strings.Contains(err.Error(), "more than 300 fetches") {
		t.Errorf("one fetch too many: %v", err)
	}
}

func TestPublicAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1": true, "127.0.0.1": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "0.0.0.0": false,
		"::1": false, "fe80::1": false, "fd00::1": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "2002:a00:1::": false, "224.0.0.1": false, "255.255.255.255": false,
	} {
		if got := public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// A JSON schema becomes a structural schema. Parts that a CRD cannot have allow anything.
func TestJSONSchemas(t *testing.T) {
	for name, tc := range map[string]struct{ schema, want string }{
		"members":               {"properties: {a: {type: string, pattern: x, description: d}}, additionalProperties: false", "properties: {a: {type: string, pattern: x}}"},
		"an open object":        {"properties: {a: {type: object, properties: {b: {type: string}}}, c: {type: object, properties: {d: {type: string}}, additionalProperties: false}}", "properties: {a: {type: object, properties: {b: {type: string}}, x-kubernetes-preserve-unknown-fields: true}, c: {type: object, properties: {d: {type: string}}}}"},
		"never closed":          {"properties: {a: {type: object, properties: {b: {type: string}}}}", "properties: {a: {type: object, properties: {b: {type: string}}}}"},
		"a map":                 {"properties: {a: {type: object, additionalProperties: {type: string}}}", "properties: {a: {type: object, additionalProperties: {type: string}}}"},
		"null":                  {"properties: {a: {type: [string, 'null']}}", "properties: {a: {type: string, nullable: true}}"},
		"an integer or a text":  {"properties: {a: {oneOf: [{type: string}, {type: integer}]}, b: {anyOf: [{type: integer}, {type: string}], pattern: x}}", "properties: {a: {x-kubernetes-int-or-string: true}, b: {x-kubernetes-int-or-string: true, pattern: x}}"},
		"several types":         {"properties: {a: {type: [object, array]}}", "properties: {a: {x-kubernetes-preserve-unknown-fields: true}}"},
		"a reference":           {"definitions: {x: {type: integer}}, properties: {a: {$ref: '#/definitions/x'}, b: {$ref: 'https://example.com/x'}}", "properties: {a: {type: integer}, b: {x-kubernetes-preserve-unknown-fields: true}}"},
		"a reference to itself": {"properties: {a: {$ref: '#/properties/a'}}", "properties: {a: {x-kubernetes-preserve-unknown-fields: true}}"},
		"alternatives":          {"properties: {a: {type: object, properties: {b: {type: string}, c: {type: string}}, oneOf: [{required: [b]}, {required: [c]}], anyOf: [{required: [z]}]}}", "properties: {a: {type: object, properties: {b: {type: string}, c: {type: string}}, oneOf: [{required: [b]}, {required: [c]}]}}"},
		"a list":                {"properties: {a: {type: array, items: {type: string}}, b: {type: array}}", "properties: {a: {type: array, items: {type: string}}, b: {type: array, items: {x-kubernetes-preserve-unknown-fields: true}}}"},
		"CEL rules":             {"properties: {a: {type: string, x-kubernetes-validations: [{rule: 'self != x'}]}}", "properties: {a: {type: string, x-kubernetes-validations: [{rule: 'self != x'}]}}"},
	} {
		data, err := yaml.YAMLToJSON([]byte("{type: object, " + tc.schema + "}"))
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := yaml.Unmarshal([]byte("{type: object, "+tc.want+"}"), &want); err != nil {
			t.Fatal(err)
		}
		for member, of := range map[string]string{"apiVersion": "string", "kind": "string", "metadata": "object"} {
			want["properties"].(map[string]any)[member] = map[string]any{"type": of}
		}
		if diff := cmp.Diff(want, FromJSONSchema(data)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, text := range []string{"[]", "{}", `{"type": "string"}`, "no"} {
		if FromJSONSchema([]byte(text)) != nil {
			t.Errorf("%s is a schema", text)
		}
	}
}

// Policies and webhooks depend on a guessed resource if a rule for its group names resources or a scope.
func TestMatchingByResource(t *testing.T) {
	var objects []*unstructured.Unstructured
	for name, rule := range map[string]string{
		"by-resource": "{apiGroups: [example.com], resources: [widgets]}", "by-scope": "{apiGroups: ['*'], resources: ['*'], scope: Namespaced}",
		"all": "{apiGroups: ['*'], resources: ['*'], scope: '*'}", "other-group": "{apiGroups: [apps], resources: [deployments]}",
	} {
		u := &unstructured.Unstructured{}
		text := fmt.Sprintf("{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: %s}, spec: {matchConstraints: {resourceRules: [%s]}}}", name, rule)
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, u)
	}
	got := map[string]bool{}
	for _, name := range Matching(objects, "example.com") {
		got[name] = true
	}
	if diff := cmp.Diff(map[string]bool{"by-resource": true, "by-scope": true}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The OpenAPI of an API server has the schemas of CRDs, and of other kinds, whose names begin with a package.
func TestOpenAPI(t *testing.T) {
	const document = `{"components": {"schemas": {
"com.example.v1.Widget": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}], "properties": {
  "apiVersion": {"type": "string", "description": "d"}, "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.ObjectMeta"}], "default": {}},
  "spec": {"type": "object", "x-kubernetes-validations": [{"rule": "true"}], "properties": {"kind": {"type": "integer"}, "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"metadata": {"$ref": "#/x"}}}}}}},
"com.example.v1.WidgetList": {"type": "object"},
"com.example.apis.v1.Other": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Other"}]}}}}`
	got, err := OpenAPI([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	want := map[schema.GroupVersionKind]map[string]any{{Group: "example.com", Version: "v1", Kind: "Widget"}: {
		"type": "object", "properties": map[string]any{
			"apiVersion": map[string]any{"type": "string"}, "metadata": map[string]any{"type": "object"},
			"spec": map[string]any{"type": "object", "x-kubernetes-validations": []any{map[string]any{"rule": "true"}}, "properties": map[string]any{
				"kind": map[string]any{"type": "integer"}, "template": map[string]any{"type": "object", "x-kubernetes-embedded-resource": true, "properties": map[string]any{"metadata": map[string]any{"type": "object"}}},
			}},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
