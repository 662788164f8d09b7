package customresources

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
)

// S18.22 S18.23 D51 F7: the schema of a kind is available as soon as the kind is served, in every
// version, and a changed schema as soon as it is active.
func TestSchemasAreKnownAtOnce(t *testing.T) {
	e := newEnv(t)
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	merge := func(kind schema.GroupVersionKind, spec map[string]any) (any, error) {
		object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "w"}, "spec": map[string]any{"size": int64(1)}}}
		object.SetGroupVersionKind(kind)
		out, err := mutation.Merge(e.Server, kind, object, map[string]any{"spec": spec})
		return out["spec"], err
	}
	if e.TypeConverter(kind) != nil {
		t.Error("there is a schema before there is a kind")
	}
	e.define(widgets)
	for _, version := range []string{"v1", "v1beta1"} {
		of := schema.GroupVersionKind{Group: kind.Group, Version: version, Kind: kind.Kind}
		if got, err := merge(of, map[string]any{"color": "red"}); err != nil || got.(map[string]any)["color"] != "red" || got.(map[string]any)["size"] != int64(1) {
			t.Errorf("%s: got %v, %v", version, got, err)
		}
	}
	for _, other := range []schema.GroupVersionKind{
		{Group: kind.Group, Version: "v7", Kind: kind.Kind}, {Group: kind.Group, Version: "v1", Kind: "Other"}, {Group: "other", Version: "v1", Kind: kind.Kind},
	} {
		if e.TypeConverter(other) != nil {
			t.Errorf("there is a schema of %s", other)
		}
	}
	if _, err := merge(kind, map[string]any{"later": "x"}); err == nil || !strings.Contains(err.Error(), ".spec.later: field not declared in schema") {
		t.Errorf("got %v", err)
	}
	e.update("widgets.example.com", func(spec *apiextensionsSpec) {
		props := spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		props.Properties["later"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = props
	})
	if got, err := merge(kind, map[string]any{"later": "x"}); err != nil || got.(map[string]any)["later"] != "x" {
		t.Errorf("after the update: %v, %v", got, err)
	}
}
