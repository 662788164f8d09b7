package upstream

import (
	"compress/flate"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"weak"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The bits that mark the fields of a schema, in the order of the data.
const (
	hasDescription = 1 << iota
	hasType
	hasFormat
	hasDefault
	hasEnum
	hasRef
	hasItems
	hasProperties
	hasAdditionalProperties
	hasRequired
	hasOneOf
	hasExtensions
)

// The kinds of values of defaults, enumerations and extensions.
const (
	isText = iota
	isNumber
	isFalse
	isTrue
	isList
	isMap
	isSchema
)

//go:embed definitions.bin
var data string

// Definitions returns the definitions of all types, by name; ref makes the references among them.
// It replaces upstream's GetOpenAPIDefinitions: the caller owns the result, except for the slices
// in it, which have no room to grow.
func Definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	r := open(ref)
	r.descriptions, _ = cut(inflate(r.packed, r.prose), r.prose)
	found := make(map[string]common.OpenAPIDefinition, len(r.definitions))
	for name := range r.definitions {
		found[name] = r.definition(name)
	}
	return found
}

// Shapes returns the definitions of the types with the given names, and of all types that they
// refer to, as Definitions does, but without descriptions, which are most of the work. Names
// that upstream does not have are left out.
func Shapes(ref common.ReferenceCallback, names ...string) map[string]common.OpenAPIDefinition {
	r := open(ref)
	found := map[string]common.OpenAPIDefinition{}
	for wanted := slices.Clone(names); len(wanted) > 0; {
		name := wanted[len(wanted)-1]
		wanted = wanted[:len(wanted)-1]
		if _, ok := found[name]; ok || r.definitions[name] == "" {
			continue
		}
		d := r.definition(name)
		found[name] = d
		wanted = append(wanted, d.Dependencies...)
	}
	return found
}

// Has reports whether upstream has a definition of each of the types with the given names.
func Has(names ...string) bool {
	definitions := open(nil).definitions
	return !slices.ContainsFunc(names, func(name string) bool { return definitions[name] == "" })
}

// opened has the contents until the garbage collector frees them.
var opened struct {
	sync.Mutex
	contents weak.Pointer[contents]
}

// open returns a reader of the definitions.
func open(ref common.ReferenceCallback) *reader {
	opened.Lock()
	defer opened.Unlock()
	c := opened.contents.Value()
	if c == nil {
		c = read()
		opened.contents = weak.Make(c)
	}
	return &reader{contents: c, ref: ref, refs: map[string]spec.Ref{}}
}

// read reads everything except the definitions and the descriptions.
func read() *contents {
	r := &reader{contents: &contents{}, rest: data}
	names := r.sizes()
	r.prose = r.sizes()
	r.names, r.rest = cut(r.rest, names)
	packed := r.number()
	r.packed, r.rest = r.rest[:packed], r.rest[packed:]
	n := r.number()
	r.definitions = make(map[string]string, n)
	for range n {
		name, size := r.name(), r.number()
		r.definitions[name], r.rest = r.rest[:size], r.rest[size:]
	}
	return r.contents
}

// inflate returns the texts of the given sizes from packed, which flate compressed.
func inflate(packed string, sizes []int) string {
	var text strings.Builder
	total := 0
	for _, size := range sizes {
		total += size
	}
	text.Grow(total)
	if _, err := io.Copy(&text, flate.NewReader(strings.NewReader(packed))); err != nil {
		panic(fmt.Sprintf("upstream: descriptions: %v", err))
	}
	return text.String()
}

// cut takes texts of the given sizes off the beginning of s.
func cut(s string, sizes []int) (texts []string, rest string) {
	texts = make([]string, len(sizes))
	for i, size := range sizes {
		texts[i], s = s[:size], s[size:]
	}
	return texts, s
}

// contents are the opened parts of the data. They do not change.
type contents struct {
	names []string
	// packed is the compressed text of the descriptions, prose their sizes.
	packed string
	prose  []int
	// definitions are the definitions, not decoded yet, by name.
	definitions map[string]string
}

// reader decodes data, which the test of this package has read whole: damage is a panic.
type reader struct {
	*contents
	rest string
	// descriptions is nil when they are left out.
	descriptions []string
	ref          common.ReferenceCallback
	refs         map[string]spec.Ref
}

func (r *reader) definition(name string) common.OpenAPIDefinition {
	r.rest = r.definitions[name]
	return common.OpenAPIDefinition{Schema: r.schema(), Dependencies: r.list()}
}

func (r *reader) sizes() []int {
	sizes := make([]int, r.number())
	for i := range sizes {
		sizes[i] = r.number()
	}
	return sizes
}

func (r *reader) number() int {
	n := 0
	for shift := 0; ; shift += 7 {
		b := r.rest[0]
		r.rest = r.rest[1:]
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

func (r *reader) name() string { return r.names[r.number()] }

// list returns nil for a list without elements.
func (r *reader) list() []string {
	n := r.number()
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.name()
	}
	return list
}

func (r *reader) values() []any {
	list := make([]any, r.number())
	for i := range list {
		list[i] = r.value()
	}
	return list
}

func (r *reader) members() map[string]any {
	n := r.number()
	members := make(map[string]any, n)
	for range n {
		name := r.name()
		members[name] = r.value()
	}
	return members
}

func (r *reader) value() any {
	switch kind := r.number(); kind {
	case isText:
		return r.name()
	case isNumber:
		return r.number()
	case isFalse, isTrue:
		return kind == isTrue
	case isList:
		return r.values()
	case isMap:
		return r.members()
	case isSchema:
		return r.schema()
	default:
		panic(fmt.Sprintf("upstream: a value of kind %d", kind))
	}
}

func (r *reader) reference() spec.Ref {
	name := r.name()
	ref, ok := r.refs[name]
	if !ok {
		ref = r.ref(name)
		r.refs[name] = ref
	}
	return ref
}

func (r *reader) schema() spec.Schema {
	var s spec.Schema
	has := r.number()
	if has&hasDescription != 0 {
		if n := r.number(); r.descriptions != nil {
			s.Description = r.descriptions[n]
		}
	}
	if has&hasType != 0 {
		s.Type = r.list()
	}
	if has&hasFormat != 0 {
		s.Format = r.name()
	}
	if has&hasDefault != 0 {
		s.Default = r.value()
	}
	if has&hasEnum != 0 {
		s.Enum = r.values()
	}
	if has&hasRef != 0 {
		s.Ref = r.reference()
	}
	if has&hasItems != 0 {
		items := r.schema()
		s.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if has&hasProperties != 0 {
		n := r.number()
		s.Properties = make(map[string]spec.Schema, n)
		for range n {
			name := r.name()
			s.Properties[name] = r.schema()
		}
	}
	if has&hasAdditionalProperties != 0 {
		values := r.schema()
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
	}
	if has&hasRequired != 0 {
		s.Required = r.list()
	}
	if has&hasOneOf != 0 {
		s.OneOf = make([]spec.Schema, r.number())
		for i := range s.OneOf {
			s.OneOf[i] = r.schema()
		}
	}
	if has&hasExtensions != 0 {
		s.Extensions = r.members()
	}
	return s
}
