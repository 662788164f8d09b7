package customresources

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/yaml"
)

// The type converter of a CRD has the types of its OpenAPI documents.
func TestTypesAreThoseOfTheDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		schema string
		change func(*apiextensionsv1.CustomResourceDefinition)
	}{
		"all kinds of fields": {schema: `
type: object
description: what it is
required: [spec]
properties:
  apiVersion: {type: string}
  kind: {type: string}
  metadata: {type: object, properties: {name: {type: string, maxLength: 10}}}
  spec:
    type: object
    x-kubernetes-map-type: atomic
    properties:
      port: {x-kubernetes-int-or-string: true}
      limit: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], pattern: "^[0-9]+$"}
      count: {type: integer, format: int64, default: 3, nullable: true, minimum: 1}
      share: {type: number, format: double}
      at: {type: string, format: date-time}
      on: {type: boolean, default: true}
      labels: {type: object, additionalProperties: {type: string}}
      nested: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}
      any: {type: object, x-kubernetes-preserve-unknown-fields: true}
      anything: {x-kubernetes-preserve-unknown-fields: true}
      below: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: object, properties: {b: {type: string}}}}}
      empty: {type: object}
      set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      atomic: {type: array, x-kubernetes-list-type: atomic, items: {type: object, properties: {a: {type: string}}}}
      ports:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [port, protocol]
        items:
          type: object
          required: [port]
          properties:
            port: {type: integer}
            protocol: {type: string, default: TCP}
            more: {type: object, default: {a: b}, properties: {a: {type: string}}}
      embedded: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
      template:
        type: object
        x-kubernetes-embedded-resource: true
        properties: {spec: {type: object, properties: {a: {type: string}}}}
      templates: {type: array, items: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: string}}}}
      byName: {type: object, additionalProperties: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}
      choice: {type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}], allOf: [{properties: {a: {minLength: 1}}}]}
  status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`},
		"no fields":                       {schema: "type: object"},
		"unknown fields":                  {schema: "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {spec: {type: object, properties: {a: {type: string}}}}}"},
		"no schema":                       {},
		"a schema that is not structural": {schema: "{type: object, properties: {spec: {properties: {a: {type: string}}}}}"},
		"a type that nobody knows":        {schema: "{type: object, properties: {spec: {type: text}}}"},
		"from before structural schemas": {
			schema: "{properties: {spec: {type: object, properties: {a: {type: string}}}}}",
			change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.PreserveUnknownFields = true },
		},
		"a scale": {
			schema: "{type: object, properties: {spec: {type: object, properties: {replicas: {type: integer}}}}}",
			change: func(crd *apiextensionsv1.CustomResourceDefinition) {
				crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
				}
			},
		},
		"two versions": {
			schema: "{type: object, properties: {spec: {type: object, properties: {a: {type: string}}}}}",
			change: func(crd *apiextensionsv1.CustomResourceDefinition) {
				other := *crd.Spec.Versions[0].DeepCopy()
				other.Name, other.Storage, other.Served = "v1alpha1", false, false
				other.Schema.OpenAPIV3Schema.Properties["spec"].Properties["b"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
				crd.Spec.Versions = append(crd.Spec.Versions, other)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict([]byte(widgets), crd); err != nil {
				t.Fatal(err)
			}
			crd.Spec.Versions = crd.Spec.Versions[:1]
			crd.Spec.Versions[0].Storage = true
			crd.Spec.Versions[0].Schema = nil
			if c.schema != "" {
				crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{}}
				if err := yaml.UnmarshalStrict([]byte(c.schema), crd.Spec.Versions[0].Schema.OpenAPIV3Schema); err != nil {
					t.Fatal(err)
				}
			}
			if c.change != nil {
				c.change(crd)
			}
			crd.Spec.Names.ListKind = "WidgetList"
			crd.Status.AcceptedNames = crd.Spec.Names
			d, err := (&Server{}).define(crd, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.close)
			got, err := d.models()
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]*spec.Schema{}
			for _, v := range crd.Spec.Versions {
				var document *spec3.OpenAPI
				if document, err = d.document(v.Name); err != nil {
					t.Fatal(err)
				}
				maps.Copy(want, document.Components.Schemas)
			}
			typesOf := func(models map[string]*spec.Schema) map[string]smdschema.TypeDef {
				s, err := schemaconv.ToSchemaFromOpenAPI(models, crd.Spec.PreserveUnknownFields)
				if err != nil {
					t.Fatal(err)
				}
				types := map[string]smdschema.TypeDef{}
				for _, def := range s.Types {
					types[def.Name] = def
				}
				return types
			}
			types, documented := typesOf(got), typesOf(want)
			for _, v := range crd.Spec.Versions {
				name := d.modelName(v.Name)
				if _, ok := types[name]; !ok {
					t.Errorf("no type %q; those of the document are %q", name, slices.Sorted(maps.Keys(documented)))
				}
				if diff := gocmp.Diff(want[name].Extensions["x-kubernetes-group-version-kind"], got[name].Extensions["x-kubernetes-group-version-kind"]); diff != "" {
					t.Errorf("kind of %s (-document +converter):\n%s", name, diff)
				}
			}
			for name, def := range types {
				other, ok := documented[name]
				if !ok && name != scaleModel && name != scaleModel+"Spec" && name != scaleModel+"Status" {
					t.Errorf("the document has no %s", name)
				}
				if !ok {
					continue
				}
				if diff := gocmp.Diff(other, def, cmpopts.SortSlices(func(a, b smdschema.StructField) int { return cmp.Compare(a.Name, b.Name) }),
					cmpopts.IgnoreUnexported(smdschema.Map{})); diff != "" {
					t.Errorf("type %s (-document +converter):\n%s", name, diff)
				}
				if def.Map == nil {
					continue
				}
				for _, field := range def.Map.Fields {
					if named := field.Type.NamedType; named != nil && types[*named].Name == "" {
						t.Errorf("field %s of %s is of a type %q that is not there", field.Name, name, *named)
					}
				}
			}
		})
	}
}
