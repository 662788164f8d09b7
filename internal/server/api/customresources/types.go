package customresources

import (
	"maps"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Names of schemas in OpenAPI documents.
const (
	metaPrefix = "io.k8s.apimachinery.pkg.apis.meta.v1."
	objectMeta = metaPrefix + "ObjectMeta"
	scaleModel = "io.k8s.api.autoscaling.v1.Scale"
)

// sharedModels are the schemas that the schemas of custom kinds refer to, and the schemas of the
// scale subresource, by name. They come from upstream's document of a kind without fields.
var sharedModels = sync.OnceValues(func() (map[string]*spec.Schema, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "None", ListKind: "NoneList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1",
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "string"}},
			}},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{}},
		}},
	}}
	document, err := builder.BuildOpenAPIV3(crd, "v1", builder.Options{})
	if err != nil {
		return nil, err
	}
	shared := map[string]*spec.Schema{}
	add := func(name string) {
		shared[name] = document.Components.Schemas[name]
	}
	for _, name := range []string{"OwnerReference", "ManagedFieldsEntry", "FieldsV1", "Time"} {
		add(metaPrefix + name)
	}
	for _, name := range []string{"", "Spec", "Status"} {
		add(scaleModel + name)
	}
	metadata := withInitializers(*document.Components.Schemas[objectMeta])
	shared[objectMeta] = &metadata
	return shared, nil
})

// newTypeConverter builds the type converter for server-side apply. It includes versions that are
// no longer served: objects may have fields that were managed in them. The converter uses the
// schemas of the OpenAPI documents. It builds a document only where a schema is not structural,
// because a document takes several times as long.
func (d *definition) newTypeConverter() (managedfields.TypeConverter, error) {
	models, err := d.models()
	if err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(models, d.crd.Spec.PreserveUnknownFields)
}

// models returns the schemas of all versions, and the schemas that they refer to, by name.
func (d *definition) models() (map[string]*spec.Schema, error) {
	shared, err := sharedModels()
	if err != nil {
		return nil, err
	}
	models := maps.Clone(shared)
	for i := range d.crd.Spec.Versions {
		version := d.crd.Spec.Versions[i].Name
		if model, err := d.model(version); err != nil {
			return nil, err
		} else if model != nil {
			models[d.modelName(version)] = model
			continue
		}
		document, err := d.document(version)
		if err != nil {
			return nil, err
		}
		maps.Copy(models, document.Components.Schemas)
	}
	return models, nil
}

// modelName is the name of a version's schema in OpenAPI documents.
func (d *definition) modelName(version string) string {
	group := strings.Split(d.crd.Spec.Group, ".")
	slices.Reverse(group)
	return strings.Join(append(group, version, d.crd.Spec.Names.Kind), ".")
}

// model returns the schema of a version's objects in the OpenAPI document, limited to types; nil if
// the version has no structural schema.
func (d *definition) model(version string) (*spec.Schema, error) {
	if d.crd.Spec.PreserveUnknownFields {
		return nil, nil
	}
	structural, err := d.schemas.of(version)
	if err != nil || structural == nil || !typed(structural) || len(structuralschema.ValidateStructural(nil, structural)) > 0 {
		return nil, err
	}
	model := structural.ToKubeOpenAPI()
	withMetadata(model)
	addEmbedded(model)
	model.AddExtension("x-kubernetes-group-version-kind", []any{
		map[string]any{"group": d.crd.Spec.Group, "version": version, "kind": d.crd.Spec.Names.Kind},
	})
	return model, nil
}

// typed reports whether all types of a schema are known types.
func typed(s *structuralschema.Structural) bool {
	known := true
	visitor := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		switch s.Type {
		case "", "string", "number", "integer", "boolean", "array", "object":
		default:
			known = false
		}
		return false
	}}
	visitor.Visit(s)
	return known
}

// withMetadata gives a schema the fields that all objects have.
func withMetadata(s *spec.Schema) {
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", *spec.RefSchema("#/components/schemas/" + objectMeta))
}

// addEmbedded gives the objects in a schema the fields that all objects have.
func addEmbedded(s *spec.Schema) {
	for name, property := range s.Properties {
		addEmbedded(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		addEmbedded(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		addEmbedded(s.AdditionalProperties.Schema)
	}
	if embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); embedded {
		withMetadata(s)
	}
}
