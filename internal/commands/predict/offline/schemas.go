package offline

import (
	"encoding/json"
	"iter"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schema returns the schema of a kind, from the CRD or from the built-in kinds. It returns nil for a kind without a
// schema.
func (s *survey) schema(kind schema.GroupVersionKind) *spec.Schema {
	return SchemaOf(kind, maps.Values(s.definitions))
}

// SchemaOf returns the schema of a kind, from its CRD among the given ones or from the built-in kinds; nil for a kind
// without a schema. The schema must not be changed.
func SchemaOf(kind schema.GroupVersionKind, definitions iter.Seq[*unstructured.Unstructured]) *spec.Schema {
	for u := range definitions {
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		name, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
		if kind.Group == group && kind.Kind == name {
			return schemaOf(u, kind.Version)
		}
	}
	found, err := models().ResolveSchema(kind)
	if err != nil {
		return nil
	}
	return found
}

// schemaOf returns the schema of a version of a custom resource, nil if its CRD has none.
func schemaOf(definition *unstructured.Unstructured, version string) *spec.Schema {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		content, _ := v.(map[string]any)
		written, found, _ := unstructured.NestedMap(content, "schema", "openAPIV3Schema")
		if content["name"] != version || !found {
			continue
		}
		text, err := json.Marshal(written)
		if err != nil {
			return nil
		}
		made := &spec.Schema{}
		if json.Unmarshal(text, made) != nil {
			return nil
		}
		// A CRD says little about metadata, which are the same for all kinds.
		if known, err := models().ResolveSchema(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}); err == nil && len(made.Properties) > 0 {
			made.Properties["metadata"] = known.Properties["metadata"]
		}
		return made
	}
	return nil
}
