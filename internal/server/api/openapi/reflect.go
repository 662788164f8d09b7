package openapi

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Package is a package of types that Reflect describes.
type Package struct {
	// Example is a value of one of its types.
	Example any
	// FieldDocs returns the comments of fields, as fielddocs.Of does.
	FieldDocs func() map[string]map[string]string
}

// Reflect describes Go types that have no generated definitions, and the types of their fields: by
// their json, patchStrategy and patchMergeKey tags, and by the comments of packages. Each example
// is a pointer to a struct. Types that name their OpenAPI model, as the types of
// k8s.io/apimachinery do, are left to the generated definitions.
//
// Reflect panics on a field that JSON cannot express, such as a channel.
func Reflect(packages []Package, examples ...any) common.GetOpenAPIDefinitions {
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		r := &reflector{ref: ref, docs: map[string]map[string]map[string]string{}, found: map[string]common.OpenAPIDefinition{}}
		for _, p := range packages {
			r.docs[reflect.TypeOf(p.Example).PkgPath()] = p.FieldDocs()
		}
		for _, example := range examples {
			r.define(reflect.TypeOf(example).Elem(), util.GetCanonicalTypeName(example))
		}
		return r.found
	}
}

type reflector struct {
	ref common.ReferenceCallback
	// docs are the comments of fields, by package, type and field.
	docs  map[string]map[string]map[string]string
	found map[string]common.OpenAPIDefinition
}

// docsOf returns the comments of a struct's fields. Upstream's types have a method that returns
// them.
func (r *reflector) docsOf(t reflect.Type) map[string]string {
	if d, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return d.SwaggerDoc()
	}
	return r.docs[t.PkgPath()][t.Name()]
}

// define adds the definition of a struct under name.
func (r *reflector) define(t reflect.Type, name string) {
	if _, ok := r.found[name]; ok {
		return
	}
	// The entry marks the type as being defined: the type may contain itself.
	r.found[name] = common.OpenAPIDefinition{}
	docs := r.docsOf(t)
	s := spec.Schema{SchemaProps: spec.SchemaProps{
		Type: []string{"object"}, Description: docs[""], Properties: map[string]spec.Schema{},
	}}
	needs := map[string]bool{}
	r.fields(t, docs, &s, needs)
	r.found[name] = common.OpenAPIDefinition{Schema: s, Dependencies: slices.Sorted(maps.Keys(needs))}
}

// fields adds the fields of a struct, including the fields of embedded structs.
func (r *reflector) fields(t reflect.Type, docs map[string]string, s *spec.Schema, needs map[string]bool) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if f.Anonymous && name == "" {
			r.fields(f.Type, r.docsOf(f.Type), s, needs)
			continue
		}
		property := r.schema(f.Type, needs)
		property.Description = docs[name]
		if strategy := f.Tag.Get("patchStrategy"); strategy != "" {
			property.AddExtension("x-kubernetes-patch-strategy", strategy)
		}
		if f.Type.Kind() == reflect.Slice && len(property.Type) > 0 && property.Type[0] == "array" {
			if key := f.Tag.Get("patchMergeKey"); key != "" {
				property.AddExtension("x-kubernetes-patch-merge-key", key)
				property.AddExtension("x-kubernetes-list-type", "map")
				property.AddExtension("x-kubernetes-list-map-keys", []any{key})
			} else {
				property.AddExtension("x-kubernetes-list-type", "atomic")
			}
		}
		s.Properties[name] = property
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") && f.Type.Kind() != reflect.Pointer {
			s.Required = append(s.Required, name)
		}
	}
}

var basic = map[reflect.Kind]func() *spec.Schema{
	reflect.String: spec.StringProperty,
	reflect.Bool:   spec.BooleanProperty,
	reflect.Int:    spec.Int64Property,
	reflect.Int8:   spec.Int32Property,
	reflect.Int16:  spec.Int32Property,
	reflect.Int32:  spec.Int32Property,
	reflect.Int64:  spec.Int64Property,
	// As in kube-openapi, whose formats have no unsigned integers.
	reflect.Uint32:  spec.Int64Property,
	reflect.Uint64:  spec.Int64Property,
	reflect.Float32: spec.Float32Property,
	reflect.Float64: spec.Float64Property,
}

// schema describes one type, by reference if it is a struct.
func (r *reflector) schema(t reflect.Type, needs map[string]bool) spec.Schema {
	if t.Kind() == reflect.Pointer {
		return r.schema(t.Elem(), needs)
	}
	example := reflect.New(t).Interface()
	switch {
	case t == reflect.TypeFor[time.Time]():
		return *spec.DateTimeProperty()
	case t.Kind() == reflect.Struct || isNamed(example):
		name := util.GetCanonicalTypeName(example)
		needs[name] = true
		if !isNamed(example) {
			r.define(t, name)
		}
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: r.ref(name)}}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		s := spec.Schema{}
		s.AddExtension("x-kubernetes-preserve-unknown-fields", true)
		return s
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return *spec.StrFmtProperty("byte")
	case t.Kind() == reflect.Slice:
		items := r.schema(t.Elem(), needs)
		return *spec.ArrayProperty(&items)
	case t.Kind() == reflect.Map:
		values := r.schema(t.Elem(), needs)
		return *spec.MapProperty(&values)
	case basic[t.Kind()] != nil:
		return *basic[t.Kind()]()
	}
	panic("openapi: a field of type " + t.String() + " cannot be described")
}

func isNamed(example any) bool {
	_, ok := example.(util.OpenAPIModelNamer)
	return ok
}
