package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// Difference returns the JSON patch that makes one object of another, both as users see
// them in a kind; nil when they are the same. Elements of lists are compared by position.
// The objects are not changed. Only what differs is encoded.
func Difference(before, after runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) ([]byte, error) {
	if Same(before, after) {
		return nil, nil
	}
	s := Set{o: o}
	var values [2]reflect.Value
	shown := initializers.Has(before) || initializers.Has(after)
	for i, object := range []runtime.Object{before, after} {
		converted, err := s.convert(object, kind)
		if err != nil {
			return nil, err
		}
		values[i] = reflect.ValueOf(converted)
		u, ok := converted.(*unstructured.Unstructured)
		switch {
		case shown:
			content, err := exposed(converted)
			if err != nil {
				return nil, fmt.Errorf("encoding the object: %w", err)
			}
			values[i] = reflect.ValueOf(content)
		case ok:
			values[i] = reflect.ValueOf(u.Object)
		}
	}
	var d difference
	if err := d.value("", values[0], values[1]); err != nil || d == nil {
		return nil, err
	}
	return json.Marshal(d)
}

// Edits describes the operations of a difference, with the values in the object before.
func Edits(before runtime.Object, patch []byte, kind schema.GroupVersionKind, o admission.ObjectInterfaces) []review.Edit {
	p, err := review.DecodePatch(patch)
	if err != nil || len(p) == 0 {
		return nil
	}
	s := Set{o: o}
	converted, err := s.convert(before, kind)
	if err != nil {
		return nil
	}
	content, err := exposed(converted)
	if err != nil {
		return nil
	}
	return p.Edits(context.Background(), content)
}

// difference is a JSON patch.
type difference []operation

type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

var (
	escape    = strings.NewReplacer("~", "~0", "/", "~1")
	marshaler = reflect.TypeFor[json.Marshaler]()
)

// value adds the operations that turn before into after, two values of one type.
func (d *difference) value(path string, before, after reflect.Value) error {
	if before.Type() != after.Type() || before.Type().Implements(marshaler) || reflect.PointerTo(before.Type()).Implements(marshaler) {
		return d.replace(path, before, after)
	}
	switch before.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !before.IsNil() && !after.IsNil() {
			return d.value(path, before.Elem(), after.Elem())
		}
	case reflect.Struct:
		return d.fields(path, before, after)
	case reflect.Map:
		return d.members(path, before, after)
	case reflect.Slice:
		if before.Type().Elem().Kind() != reflect.Uint8 {
			return d.elements(path, before, after)
		}
	}
	return d.replace(path, before, after)
}

// fields compares structs, by the names and rules of their encoding.
func (d *difference) fields(path string, before, after reflect.Value) error {
	for _, f := range encodedFields(before.Type()) {
		b, a := before.Field(f.index), after.Field(f.index)
		if sameValue(b, a) {
			continue
		}
		var err error
		if f.inline {
			err = d.value(path, b, a)
		} else {
			err = d.member(path+"/"+f.name, b, a, f.present(b), f.present(a))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// encodedField is a field of a struct as JSON shows it.
type encodedField struct {
	index int
	name  string
	// inline is for an embedded struct whose fields count as those of the outer one.
	inline, omitEmpty, omitZero bool
}

// fieldsOfTypes remembers the encoded fields of each struct type: a map of reflect.Type
// to []encodedField. There are as many as API types.
var fieldsOfTypes sync.Map

func encodedFields(t reflect.Type) []encodedField {
	if known, ok := fieldsOfTypes.Load(t); ok {
		return known.([]encodedField)
	}
	var fields []encodedField
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		fields = append(fields, encodedField{
			index: i, name: name, inline: field.Anonymous && name == "",
			omitEmpty: strings.Contains(options, "omitempty"), omitZero: strings.Contains(options, "omitzero"),
		})
	}
	fieldsOfTypes.Store(t, fields)
	return fields
}

// present reports whether a value of the field is encoded.
func (f encodedField) present(v reflect.Value) bool {
	if f.omitZero && v.IsZero() {
		return false
	}
	if !f.omitEmpty {
		return true
	}
	switch v.Kind() {
	case reflect.Struct:
		return true
	case reflect.Map, reflect.Slice, reflect.Array:
		return v.Len() > 0
	}
	return !v.IsZero()
}

func (d *difference) member(path string, before, after reflect.Value, was, is bool) error {
	switch {
	case was && is:
		return d.value(path, before, after)
	case is:
		return d.set("add", path, after)
	case was:
		*d = append(*d, operation{Op: "remove", Path: path})
	}
	return nil
}

func (d *difference) members(path string, before, after reflect.Value) error {
	keys := map[string]reflect.Value{}
	for _, m := range []reflect.Value{before, after} {
		for _, key := range m.MapKeys() {
			keys[key.String()] = key
		}
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		b, a := before.MapIndex(keys[name]), after.MapIndex(keys[name])
		if b.IsValid() && a.IsValid() && sameValue(b, a) {
			continue
		}
		if err := d.member(path+"/"+escape.Replace(name), b, a, b.IsValid(), a.IsValid()); err != nil {
			return err
		}
	}
	return nil
}

func (d *difference) elements(path string, before, after reflect.Value) error {
	both := min(before.Len(), after.Len())
	for i := range both {
		if b, a := before.Index(i), after.Index(i); !sameValue(b, a) {
			if err := d.value(path+"/"+strconv.Itoa(i), b, a); err != nil {
				return err
			}
		}
	}
	for i := before.Len() - 1; i >= both; i-- {
		*d = append(*d, operation{Op: "remove", Path: path + "/" + strconv.Itoa(i)})
	}
	for i := both; i < after.Len(); i++ {
		if err := d.set("add", path+"/"+strconv.Itoa(i), after.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// replace adds the replacement of one value, unless both are encoded alike.
func (d *difference) replace(path string, before, after reflect.Value) error {
	was, err := json.Marshal(before.Interface())
	if err != nil {
		return err
	}
	is, err := json.Marshal(after.Interface())
	if err == nil && !bytes.Equal(was, is) {
		*d = append(*d, operation{Op: "replace", Path: path, Value: is})
	}
	return err
}

func (d *difference) set(op, path string, value reflect.Value) error {
	data, err := json.Marshal(value.Interface())
	*d = append(*d, operation{Op: op, Path: path, Value: data})
	return err
}
