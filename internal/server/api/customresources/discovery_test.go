package customresources

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Discovery shows the resources of a CRD.
func TestVersions(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	e.define(strings.NewReplacer("widget", "gizmo", "Widget", "Gizmo", "wd", "gz", "Namespaced", "Cluster", "example.com", "a.example.com").Replace(widgets))
	e.await(func() bool { return len(e.Versions()) == 4 })
	got := []string{}
	for _, v := range e.Versions() {
		for _, r := range v.Resources {
			r.StorageVersionHash = ""
			data, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, v.String()+" "+string(data))
		}
	}
	const main, sub = `"verbs":["delete","deletecollection","get","list","patch","create","update","watch"],`, `"verbs":["get","patch","update"]}`
	gizmo := []string{
		`{"name":"gizmos","singularName":"gizmo","namespaced":false,"kind":"Gizmo",` + main + `"shortNames":["gz"],"categories":["all","toys"]}`,
		`{"name":"gizmos/status","singularName":"","namespaced":false,"kind":"Gizmo",` + sub,
		`{"name":"gizmos/scale","singularName":"","namespaced":false,"group":"autoscaling","version":"v1","kind":"Scale",` + sub,
	}
	widget := strings.NewReplacer("gizmo", "widget", "Gizmo", "Widget", "gz", "wd", `"namespaced":false`, `"namespaced":true`)
	want := []string{}
	for _, gv := range []string{"a.example.com/v1", "a.example.com/v1beta1", "example.com/v1", "example.com/v1beta1"} {
		for _, r := range gizmo {
			if !strings.HasPrefix(gv, "a.") {
				r = widget.Replace(r)
			}
			want = append(want, gv+" "+r)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if v := e.Versions(); v[0].Resources[0].StorageVersionHash == "" || v[0].Resources[0].StorageVersionHash != v[1].Resources[0].StorageVersionHash {
		t.Errorf("storage version hashes %q and %q", v[0].Resources[0].StorageVersionHash, v[1].Resources[0].StorageVersionHash)
	}
}

// The documents describe the kinds and metadata.initializers, and show that objects can be
// applied.
func TestOpenAPI(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	e.define(strings.NewReplacer("widget", "gizmo", "Widget", "Gizmo", "wd", "gz").Replace(widgets))
	gv := groupVersion{Group: "example.com", Version: "v1"}
	e.await(func() bool { return len(e.Versions()) == 2 && len(e.Versions()[0].Resources) == 6 })
	v3, err := e.OpenAPIV3(gv)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Widget", "WidgetList", "Gizmo"} {
		if v3.Components.Schemas["com.example.v1."+kind] == nil {
			t.Errorf("v3 has no %s; it has %q", kind, sorted(v3.Components.Schemas))
		}
	}
	path := v3.Paths.Paths["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]
	if path == nil || path.Patch == nil || path.Patch.RequestBody.Content["application/apply-patch+yaml"] == nil {
		t.Error("v3 does not say that widgets can be applied")
	}
	if !hasInitializers(v3.Components.Schemas[objectMeta]) {
		t.Error("v3 does not know metadata.initializers")
	}
	if other, err := e.OpenAPIV3(groupVersion{Group: "example.com", Version: "v9"}); other != nil || err != nil {
		t.Errorf("v3 of an unknown version: %v, %v", other, err)
	}

	static := &spec.Swagger{SwaggerProps: spec.SwaggerProps{Swagger: "2.0", Paths: &spec.Paths{}, Definitions: spec.Definitions{}}}
	v2, err := e.OpenAPIV2(static)
	if err != nil {
		t.Fatal(err)
	}
	metadata := v2.Definitions[objectMeta]
	if !hasInitializers(&metadata) {
		t.Errorf("v2 does not know metadata.initializers; it has %q", sorted(v2.Definitions))
	}
	if _, ok := v2.Definitions["com.example.v1.Widget"]; !ok || len(static.Definitions) != 0 {
		t.Errorf("v2 has %q, and the static document %q", sorted(v2.Definitions), sorted(static.Definitions))
	}
}

func hasInitializers(metadata *spec.Schema) bool {
	if metadata == nil {
		return false
	}
	field := metadata.Properties["initializers"]
	_, ok := field.Properties["pending"]
	return ok
}

// TestATagChangesWithItsDocumentOnly: the OpenAPI documents of a CRD stay the same when another CRD
// changes, and when its own status changes.
func TestATagChangesWithItsDocumentOnly(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	e.define(strings.NewReplacer("widget", "gizmo", "Widget", "Gizmo", "wd", "gz", "example.com", "a.example.com").Replace(widgets))
	tags := func() map[string]string {
		found := map[string]string{}
		for _, v := range e.Versions() {
			found[v.String()] = v.Tag
		}
		return found
	}
	e.await(func() bool { return len(tags()) == 4 })
	before := tags()
	for gv, tag := range before {
		if tag == "" {
			t.Errorf("%s has no tag", gv)
		}
	}
	e.update("gizmos.a.example.com", func(spec *apiextensionsSpec) { spec.Names.Categories = []string{"changed"} })
	e.await(func() bool { return tags()["a.example.com/v1"] != before["a.example.com/v1"] })
	after := tags()
	for gv, tag := range before {
		if same := after[gv] == tag; same != !strings.HasPrefix(gv, "a.") {
			t.Errorf("%s: the tag was %q and is %q", gv, tag, after[gv])
		}
	}
}
