package upstream_test

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	generated "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi/upstream"
)

var update = flag.Bool("update", false, "rewrite definitions.bin from upstream's generated functions")

func ref(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) }

// The data equals the results of upstream's generated functions.
func TestDefinitionsAreUpstreams(t *testing.T) {
	const file = "definitions.bin"
	want := wanted(ref)
	data := encode(t, wanted(func(name string) spec.Ref { return spec.MustCreateRef(name) }))
	if *update {
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	const hint = "after an upgrade of k8s.io/kubernetes, rewrite it with go test ./internal/server/api/openapi/upstream -update"
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, data) {
		t.Errorf("%s is not what k8s.io/kubernetes generates: %s", file, hint)
	}
	got := upstream.Definitions(ref)
	if len(got) != len(want) {
		t.Errorf("%d definitions, want %d: %s", len(got), len(want), hint)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Fatalf("%s: got %#v, want %#v: %s", name, got[name], want[name], hint)
		}
	}
}

// A caller does not see the changes of another caller, such as the changes of k8s.io/kube-openapi
// when it builds schemas of definitions.
func TestDefinitionsAreTheCallersOwn(t *testing.T) {
	const pod = "io.k8s.api.core.v1.PodSpec"
	d := upstream.Definitions(ref)[pod]
	d.Schema.Type[0] = "array"
	d.Schema.Properties["containers"].Items.Schema.Type = []string{"string"}
	d.Schema.Properties["containers"].Extensions["x-kubernetes-list-type"] = "atomic"
	d.Schema.Properties["nodeName"] = spec.Schema{}
	if got := upstream.Definitions(ref)[pod]; !reflect.DeepEqual(got, wanted(ref)[pod]) {
		t.Errorf("after a change of what another call returned: %#v", got)
	}
}

// Shapes are the requested definitions, and the definitions that they refer to, without
// descriptions.
func TestShapesAreDefinitionsWithoutDescriptions(t *testing.T) {
	const role, rule, meta, pod = "io.k8s.api.rbac.v1.Role", "io.k8s.api.rbac.v1.PolicyRule", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "io.k8s.api.core.v1.Pod"
	all := upstream.Definitions(ref)
	got := upstream.Shapes(ref, role, "com.example.Unknown")
	for _, name := range []string{role, rule, meta} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if _, ok := got[pod]; ok || len(got) > 10 {
		t.Errorf("%d definitions, with %s: %v", len(got), pod, ok)
	}
	for name, d := range got {
		want := all[name]
		want.Schema.Description = ""
		for property, s := range want.Schema.Properties {
			s.Description = ""
			want.Schema.Properties[property] = s
		}
		if !reflect.DeepEqual(d, want) {
			t.Errorf("%s: got %#v, want %#v", name, d, want)
		}
	}
}

// wanted returns upstream's definitions. Defaults that are constants of a type of string
// become plain strings, which are the same in JSON.
func wanted(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	definitions := generated.GetOpenAPIDefinitions(ref)
	for _, d := range definitions {
		for name, property := range d.Schema.Properties {
			if v := reflect.ValueOf(property.Default); v.Kind() == reflect.String {
				property.Default = v.String()
				d.Schema.Properties[name] = property
			}
		}
	}
	return definitions
}

func BenchmarkShapes(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if n := len(upstream.Shapes(ref, "io.k8s.api.rbac.v1.Role")); n == 0 {
			b.Fatal("no definitions")
		}
	}
}

func BenchmarkDefinitions(b *testing.B) {
	for name, get := range map[string]common.GetOpenAPIDefinitions{"data": upstream.Definitions, "generated": generated.GetOpenAPIDefinitions} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n := len(get(ref)); n < 1000 {
					b.Fatalf("%d definitions", n)
				}
			}
		})
	}
}

// encode writes definitions in the format of the package; each reference is the name of its
// target.
func encode(t *testing.T, definitions map[string]common.OpenAPIDefinition) []byte {
	w := &writer{names: newTable(), descriptions: newTable()}
	w.number(len(definitions))
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		d := &writer{names: w.names, descriptions: w.descriptions}
		if err := d.schema(definitions[name].Schema); err != nil {
			t.Fatalf("%s: %v: give it one in internal/server/api/openapi/upstream", name, err)
		}
		d.list(definitions[name].Dependencies)
		w.name(name)
		w.number(len(d.out))
		w.out = append(w.out, d.out...)
	}
	var packed bytes.Buffer
	f, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, strings.Join(w.descriptions.texts, "")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	out := &writer{}
	for _, table := range []*table{w.names, w.descriptions} {
		out.number(len(table.texts))
		for _, text := range table.texts {
			out.number(len(text))
		}
	}
	out.out = append(out.out, strings.Join(w.names.texts, "")...)
	out.number(packed.Len())
	return slices.Concat(out.out, packed.Bytes(), w.out)
}

// table numbers texts.
type table struct {
	texts   []string
	numbers map[string]int
}

func newTable() *table { return &table{numbers: map[string]int{}} }

func (t *table) number(text string) int {
	n, ok := t.numbers[text]
	if !ok {
		n = len(t.texts)
		t.texts, t.numbers[text] = append(t.texts, text), n
	}
	return n
}

type writer struct {
	out                 []byte
	names, descriptions *table
}

func (w *writer) number(n int) { w.out = binary.AppendUvarint(w.out, uint64(n)) }

func (w *writer) name(s string) { w.number(w.names.number(s)) }

func (w *writer) list(list []string) {
	w.number(len(list))
	for _, s := range list {
		w.name(s)
	}
}

func (w *writer) members(members map[string]any) error {
	w.number(len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		w.name(name)
		if err := w.value(members[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (w *writer) values(list []any) error {
	w.number(len(list))
	for _, v := range list {
		if err := w.value(v); err != nil {
			return err
		}
	}
	return nil
}

// The kinds of values, in the order of the constants of the package.
const (
	text = iota
	number
	no
	yes
	list
	members
	schema
)

func (w *writer) value(v any) error {
	switch v := v.(type) {
	case string:
		w.number(text)
		w.name(v)
	case int:
		if v < 0 {
			return fmt.Errorf("the number %d has no form", v)
		}
		w.number(number)
		w.number(v)
	case bool:
		w.number(map[bool]int{false: no, true: yes}[v])
	case []any:
		w.number(list)
		return w.values(v)
	case map[string]any:
		w.number(members)
		return w.members(v)
	case spec.Schema:
		w.number(schema)
		return w.schema(v)
	default:
		return fmt.Errorf("values of type %T have no form", v)
	}
	return nil
}

// schema writes the fields that s has. The test finds fields without a form when it decodes the
// data and compares.
func (w *writer) schema(s spec.Schema) error {
	has := 0
	fields := &writer{names: w.names, descriptions: w.descriptions}
	field := func(i int, present bool, write func() error) error {
		if !present {
			return nil
		}
		has |= 1 << i
		return write()
	}
	schema := func(s *spec.Schema) func() error { return func() error { return fields.schema(*s) } }
	one := func(s string) func() error { return func() error { fields.name(s); return nil } }
	many := func(l []string) func() error { return func() error { fields.list(l); return nil } }
	var items, values *spec.Schema
	if s.Items != nil {
		items = s.Items.Schema
	}
	if s.AdditionalProperties != nil {
		values = s.AdditionalProperties.Schema
	}
	for i, f := range []struct {
		present bool
		write   func() error
	}{
		{s.Description != "", func() error { fields.number(w.descriptions.number(s.Description)); return nil }},
		{len(s.Type) > 0, many(s.Type)},
		{s.Format != "", one(s.Format)},
		{s.Default != nil, func() error { return fields.value(s.Default) }},
		{s.Enum != nil, func() error { return fields.values(s.Enum) }},
		{s.Ref.String() != "", one(s.Ref.String())},
		{items != nil, schema(items)},
		{s.Properties != nil, func() error {
			fields.number(len(s.Properties))
			for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
				fields.name(name)
				if err := fields.schema(s.Properties[name]); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return nil
		}},
		{values != nil, schema(values)},
		{len(s.Required) > 0, many(s.Required)},
		{s.OneOf != nil, func() error {
			fields.number(len(s.OneOf))
			for i := range s.OneOf {
				if err := fields.schema(s.OneOf[i]); err != nil {
					return err
				}
			}
			return nil
		}},
		{s.Extensions != nil, func() error { return fields.members(s.Extensions) }},
	} {
		if err := field(i, f.present, f.write); err != nil {
			return err
		}
	}
	w.number(has)
	w.out = append(w.out, fields.out...)
	return nil
}
