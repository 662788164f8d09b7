package crdschema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of custom resources.
type Kind struct {
	Group, Kind, Plural, Singular string
	ShortNames                    []string
	Namespaced                    bool
	// Versions are the served versions; the first one is stored.
	Versions []Version
}

// Version is a version of a kind. A nil Schema allows any object.
type Version struct {
	Name   string
	Schema map[string]any
	// Status reports whether the version has the subresource status.
	Status bool
}

// anything is the schema of any object.
func anything() map[string]any {
	return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
}

// Definition returns a CRD of the kind, without conversion webhook.
func (k *Kind) Definition() *unstructured.Unstructured {
	names := map[string]any{"kind": k.Kind, "listKind": k.Kind + "List", "plural": k.Plural}
	if k.Singular != "" {
		names["singular"] = k.Singular
	}
	if len(k.ShortNames) > 0 {
		var short []any
		for _, name := range k.ShortNames {
			short = append(short, name)
		}
		names["shortNames"] = short
	}
	var versions []any
	for i, v := range k.Versions {
		of := v.Schema
		if of == nil {
			of = anything()
		}
		version := map[string]any{"name": v.Name, "served": true, "storage": i == 0, "schema": map[string]any{"openAPIV3Schema": of}}
		if v.Status {
			version["subresources"] = map[string]any{"status": map[string]any{}}
		}
		versions = append(versions, version)
	}
	scope := apiextensionsv1.ClusterScoped
	if k.Namespaced {
		scope = apiextensionsv1.NamespaceScoped
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiextensionsv1.SchemeGroupVersion.String(), "kind": "CustomResourceDefinition",
		"spec": map[string]any{"group": k.Group, "names": names, "scope": string(scope), "versions": versions},
	}}
	u.SetName(k.Plural + "." + k.Group)
	if strings.HasSuffix(k.Group, ".k8s.io") || strings.HasSuffix(k.Group, ".kubernetes.io") {
		// The API server requires it for these groups.
		u.SetAnnotations(map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, made from a schema"})
	}
	return u
}

// OpenAPI returns the schemas of the custom resources in an OpenAPI v3 document of an API server. Kinds of built-in and
// aggregated servers are left out.
func OpenAPI(document []byte) (map[schema.GroupVersionKind]map[string]any, error) {
	var read struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &read); err != nil {
		return nil, fmt.Errorf("OpenAPI: %w", err)
	}
	found := map[schema.GroupVersionKind]map[string]any{}
	for name, raw := range read.Components.Schemas {
		var of struct {
			Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if json.Unmarshal(raw, &of) != nil || len(of.Kinds) != 1 {
			continue
		}
		kind := of.Kinds[0]
		parts := strings.Split(kind.Group, ".")
		slices.Reverse(parts)
		// An API server names the schemas of CRDs by their group, and others by a package.
		if name != strings.Join(append(parts, kind.Version, kind.Kind), ".") {
			continue
		}
		var content map[string]any
		if err := json.Unmarshal(raw, &content); err != nil {
			return nil, fmt.Errorf("OpenAPI: %s: %w", name, err)
		}
		delete(content, "x-kubernetes-group-version-kind")
		found[kind], _ = plain(content, true).(map[string]any)
	}
	return found, nil
}

// plain changes a published schema into the schema of a CRD: without references, and with plain metadata. resource
// reports whether it is the schema of a whole object.
func plain(value any, resource bool) any {
	node, ok := value.(map[string]any)
	if !ok {
		return value
	}
	if refers(node) {
		return anything()
	}
	embedded, _ := node["x-kubernetes-embedded-resource"].(bool)
	if properties, ok := node["properties"].(map[string]any); ok {
		for name, property := range properties {
			switch {
			case (resource || embedded) && name == "metadata":
				properties[name] = map[string]any{"type": "object"}
			case (resource || embedded) && (name == "apiVersion" || name == "kind"):
				properties[name] = map[string]any{"type": "string"}
			default:
				properties[name] = plain(property, false)
			}
		}
	}
	for _, key := range []string{"items", "additionalProperties", "not"} {
		if inner, ok := node[key]; ok {
			node[key] = plain(inner, false)
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := node[key].([]any)
		for i := range list {
			list[i] = plain(list[i], false)
		}
	}
	return node
}

// refers reports whether a schema is a reference to another one.
func refers(node map[string]any) bool {
	if _, ok := node["$ref"]; ok {
		return true
	}
	all, _ := node["allOf"].([]any)
	if len(all) != 1 {
		return false
	}
	only, _ := all[0].(map[string]any)
	_, ok := only["$ref"]
	return ok
}
