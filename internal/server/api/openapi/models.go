package openapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	utilopenapi "k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi/upstream"
)

// objectMeta is the Go name of metadata's type, which is also the key of its definition.
const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// Models holds the OpenAPI definitions of the kinds of one or more schemes.
// The definitions are built when they are first used, and again when they are used after the
// garbage collector has freed them: a server without writes does not have them in memory.
// Models is safe for concurrent use.
type Models struct {
	extra   common.GetOpenAPIDefinitions
	schemes []*runtime.Scheme
	// released leaves out metadata.initializers.
	released bool

	// mu is held as long as definitions are used, because k8s.io/kube-openapi writes into them when
	// it makes schemas of them.
	mu struct {
		sync.Mutex
		definitions weak.Pointer[definitions]
	}
	// named has the namer of definitions, under a lock of its own, and resolving the resolver of schemas.
	named struct {
		sync.Mutex
		namer weak.Pointer[apiopenapi.DefinitionNamer]
	}
	resolving struct {
		sync.Mutex
		resolver weak.Pointer[resolver.DefinitionsSchemaResolver]
	}
}

// definitions are the definitions for schemas in OpenAPI v3, with their names.
type definitions struct {
	byType map[string]common.OpenAPIDefinition
	name   func(string) (string, spec.Extensions)
}

// NewModels returns the models of all kinds that are built into the server; extra adds definitions
// of kinds that upstream does not generate.
func NewModels(extra common.GetOpenAPIDefinitions, schemes ...*runtime.Scheme) *Models {
	return &Models{extra: extra, schemes: schemes}
}

// Released returns the models without metadata.initializers, as a release of Kubernetes publishes them.
func (m *Models) Released() *Models {
	return &Models{extra: m.extra, schemes: m.schemes, released: true}
}

// TypeConverter returns the type converter of the given kinds for server-side apply. The schema of a kind is built when
// the first object of the kind is converted: the schemas of the core group take 27 ms together, the schema of Namespace 1 ms.
func (m *Models) TypeConverter(scheme *runtime.Scheme, kinds []schema.GroupVersionKind) (managedfields.TypeConverter, error) {
	none, err := managedfields.NewTypeConverter(nil, false)
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	c := typeConverters{TypeConverter: none, byKind: make(map[schema.GroupVersionKind]func() (managedfields.TypeConverter, error), len(kinds))}
	for _, kind := range kinds {
		obj, err := scheme.New(kind)
		if err != nil {
			return nil, fmt.Errorf("models: %w", err)
		}
		name := util.GetCanonicalTypeName(obj)
		c.byKind[kind] = sync.OnceValues(func() (managedfields.TypeConverter, error) { return m.typeConverter(name) })
	}
	return c, nil
}

// typeConverter builds the type converter of the kinds of the type with the given name.
func (m *Models) typeConverter(name string) (managedfields.TypeConverter, error) {
	d := m.shapes([]string{name})
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{Definitions: d.byType, GetDefinitionName: d.name}, name)
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	return managedfields.NewTypeConverter(schemas, false)
}

// typeConverters has a converter for each kind. The embedded converter has no kind.
type typeConverters struct {
	managedfields.TypeConverter
	byKind map[schema.GroupVersionKind]func() (managedfields.TypeConverter, error)
}

// ObjectToTyped implements managedfields.TypeConverter.
func (c typeConverters) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	get, ok := c.byKind[obj.GetObjectKind().GroupVersionKind()]
	if !ok {
		return c.TypeConverter.ObjectToTyped(obj, opts...)
	}
	one, err := get()
	if err != nil {
		return nil, err
	}
	return one.ObjectToTyped(obj, opts...)
}

// shapes returns the definitions of the types with the given names and of all types that they refer
// to, without upstream's descriptions. The caller owns them.
func (m *Models) shapes(names []string) *definitions {
	d := &definitions{name: m.namer()}
	var extra common.GetOpenAPIDefinitions
	if !upstream.Has(names...) {
		extra = m.extra
	}
	d.byType = complete(func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		names := append(slices.Clip(names), objectMeta)
		if extra != nil {
			for _, def := range extra(ref) {
				names = append(names, def.Dependencies...)
			}
		}
		return upstream.Shapes(ref, names...)
	}, extra, d.ref)
	return d
}

// ResolveSchema returns the schema of a built-in kind with all references filled in, which the caller
// must not change. The error wraps resolver.ErrSchemaNotFound when no scheme has the kind.
func (m *Models) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	m.resolving.Lock()
	schemas := m.resolving.resolver.Value()
	if schemas == nil {
		// The resolver has its own definitions, which are never changed.
		schemas = resolver.NewDefinitionsSchemaResolver(m.definitions, m.schemes...)
		m.resolving.resolver = weak.Make(schemas)
	}
	m.resolving.Unlock()
	return schemas.ResolveSchema(kind)
}

// use calls f with the definitions, which f must not keep.
func (m *Models) use(f func(*definitions) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(m.load())
}

// hold returns the definitions for a caller that uses them several times: they stay in memory
// as long as the caller has them.
func (m *Models) hold() *definitions {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.load()
}

// load returns the definitions; mu is held.
func (m *Models) load() *definitions {
	d := m.mu.definitions.Value()
	if d == nil {
		d = &definitions{name: m.namer()}
		d.byType = m.definitions(d.ref)
		m.mu.definitions = weak.Make(d)
	}
	return d
}

// ref returns the reference of a schema to the definition of a Go type.
func (d *definitions) ref(path string) spec.Ref {
	short, _ := d.name(path)
	return spec.MustCreateRef("#/components/schemas/" + common.EscapeJsonPointer(short))
}

// namer returns a function that returns the name of a Go type's definition in documents, and the
// kinds that the type defines. The function is not safe for concurrent use.
func (m *Models) namer() func(string) (string, spec.Extensions) {
	type answer struct {
		name       string
		extensions spec.Extensions
	}
	namer := m.definitionNamer()
	// Every operation asks for the names of all its types.
	known := map[string]answer{}
	return func(path string) (string, spec.Extensions) {
		a, ok := known[path]
		if !ok {
			name := path
			if strings.Contains(path, "/") {
				name = util.ToRESTFriendlyName(path)
			}
			a.name, a.extensions = namer.GetDefinitionName(name)
			known[path] = a
		}
		return a.name, a.extensions
	}
}

// definitionNamer returns the namer of the kinds of all schemes. The namer is made again when it is
// used after the garbage collector has freed it.
func (m *Models) definitionNamer() *apiopenapi.DefinitionNamer {
	m.named.Lock()
	defer m.named.Unlock()
	namer := m.named.namer.Value()
	if namer == nil {
		namer = apiopenapi.NewDefinitionNamer(m.schemes...)
		m.named.namer = weak.Make(namer)
	}
	return namer
}

// definitions returns upstream's definitions and the definitions of extra, with metadata.initializers.
func (m *Models) definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	defs := complete(upstream.Definitions, m.extra, ref)
	if m.released {
		// complete made the properties anew.
		delete(defs[objectMeta].Schema.Properties, "initializers")
	}
	return defs
}

// complete adds the definitions of extra and metadata.initializers to definitions of upstream,
// including the definitions of metadata. extra may be nil.
func complete(some, extra common.GetOpenAPIDefinitions, ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	defs := utilopenapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(some)(ref)
	if extra != nil {
		maps.Copy(defs, extra(ref))
	}
	meta, ok := defs[objectMeta]
	if !ok {
		panic("openapi: there is no definition of " + objectMeta)
	}
	properties := maps.Clone(meta.Schema.Properties)
	properties["initializers"] = InitializersSchema()
	meta.Schema.Properties = properties
	defs[objectMeta] = meta
	return defs
}

// InitializersSchema describes metadata.initializers (S11.1). It refers to no other definition, so
// that any document can include it.
func InitializersSchema() spec.Schema {
	text := func(description string) spec.Schema {
		return *spec.StringProperty().WithDescription(description)
	}
	pending := spec.ArrayProperty(&spec.Schema{SchemaProps: spec.SchemaProps{
		Type:       []string{"object"},
		Required:   []string{"name"},
		Properties: map[string]spec.Schema{"name": text("Name of the initializer that has yet to act.")},
	}})
	pending.Description = "Pending lists the initializers that must act before the object is visible, in order."
	pending.AddExtension("x-kubernetes-list-type", "map")
	pending.AddExtension("x-kubernetes-list-map-keys", []any{"name"})
	pending.AddExtension("x-kubernetes-patch-strategy", "merge")
	pending.AddExtension("x-kubernetes-patch-merge-key", "name")
	paired := spec.ArrayProperty(&spec.Schema{SchemaProps: spec.SchemaProps{
		Type:     []string{"object"},
		Required: []string{"name", "finalizer"},
		Properties: map[string]spec.Schema{
			"name":      text("Name of the initializer."),
			"finalizer": text("Finalizer of the initializer."),
			"claimed":   *spec.BoolProperty().WithDescription("Claimed says that the initializer has begun to act. The initializer sets it."),
		},
	}})
	paired.Description = "Paired lists the initializers that the object got together with a finalizer. The server keeps the list."
	paired.AddExtension("x-kubernetes-list-type", "map")
	paired.AddExtension("x-kubernetes-list-map-keys", []any{"name"})
	paired.AddExtension("x-kubernetes-patch-strategy", "merge")
	paired.AddExtension("x-kubernetes-patch-merge-key", "name")
	result := spec.Schema{SchemaProps: spec.SchemaProps{
		Type:        []string{"object"},
		Description: "Result is the Status with which initialization failed. An object that has it is deleted.",
	}}
	result.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	field := spec.Schema{SchemaProps: spec.SchemaProps{
		Type:        []string{"object"},
		Description: "Initializers that have yet to act on this object. While the field is present the object is uninitialized: it is hidden from clients that do not ask for it with includeUninitialized=true.",
		Properties:  map[string]spec.Schema{"pending": *pending, "result": result, "paired": *paired},
	}}
	return field
}
