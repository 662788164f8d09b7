package main

import (
	"maps"

	metaopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	galleryv1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1"
	galleryv1beta1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1beta1"
)

// definitions returns the OpenAPI definitions of all types, which kubectl explain and server-side apply need.
// The definitions of the shared Kubernetes types are generated elsewhere.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := metaopenapi.GetOpenAPIDefinitions(ref)
	maps.Copy(all, painting(ref, "artist", modelNames{
		galleryv1.Painting{}.OpenAPIModelName(), galleryv1.PaintingSpec{}.OpenAPIModelName(), galleryv1.PaintingList{}.OpenAPIModelName(),
	}))
	maps.Copy(all, painting(ref, "painter", modelNames{
		galleryv1beta1.Painting{}.OpenAPIModelName(), galleryv1beta1.PaintingSpec{}.OpenAPIModelName(), galleryv1beta1.PaintingList{}.OpenAPIModelName(),
	}))
	return all
}

// modelNames are the OpenAPI names of the types of one version.
type modelNames struct{ painting, spec, list string }

// painting defines the types of one version. artist is the name of its field for the artist.
func painting(ref common.ReferenceCallback, artist string, names modelNames) map[string]common.OpenAPIDefinition {
	meta, listMeta := metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()
	object := func(description string, required []string, properties map[string]spec.Schema, uses ...string) common.OpenAPIDefinition {
		return common.OpenAPIDefinition{
			Schema: spec.Schema{SchemaProps: spec.SchemaProps{
				Type: []string{"object"}, Description: description, Required: required, Properties: properties,
			}},
			Dependencies: uses,
		}
	}
	kind := func(properties map[string]spec.Schema) map[string]spec.Schema {
		properties["apiVersion"] = *spec.StringProperty().WithDescription("The group and version.")
		properties["kind"] = *spec.StringProperty().WithDescription("The kind.")
		return properties
	}
	to := func(name string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(name), Default: map[string]any{}}}
	}
	item := to(names.painting)
	return map[string]common.OpenAPIDefinition{
		names.painting: object("Painting hangs in a gallery.", nil, kind(map[string]spec.Schema{
			"metadata": to(meta), "spec": to(names.spec),
		}), meta, names.spec),
		names.spec: object("PaintingSpec describes a painting.", []string{"title"}, map[string]spec.Schema{
			"title": *spec.StringProperty().WithDescription("Title of the painting."),
			artist:  *spec.StringProperty().WithDescription("Who painted it."),
			"year":  *spec.Int32Property().WithDescription("Year in which it was painted; 0 means unknown."),
		}),
		names.list: object("PaintingList is a list of paintings.", []string{"items"}, kind(map[string]spec.Schema{
			"metadata": to(listMeta), "items": *spec.ArrayProperty(&item),
		}), listMeta, names.painting),
	}
}
