package objects

import (
	"bytes"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Same reports quickly whether two objects of one type have the same content. It may return false
// for equivalent values with different spellings, such as quantities.
func Same(one, other runtime.Object) bool {
	if u, ok := one.(*unstructured.Unstructured); ok {
		v, ok := other.(*unstructured.Unstructured)
		return ok && reflect.DeepEqual(u.Object, v.Object)
	}
	a, b := reflect.ValueOf(one), reflect.ValueOf(other)
	return a.Type() == b.Type() && sameValue(a, b)
}

// SameFields reports whether two objects have equal fields at paths of Go field names, joined by dots. Fields that
// their type lacks are left out. Objects of different types, and objects without struct fields, are compared as by
// Same.
func SameFields(one, other runtime.Object, paths []string) bool {
	a, b := reflect.Indirect(reflect.ValueOf(one)), reflect.Indirect(reflect.ValueOf(other))
	if !haveFields(a, b) {
		return Same(one, other)
	}
	for _, path := range paths {
		if at := indexOf(a.Type(), path); at != nil && !sameValue(a.FieldByIndex(at), b.FieldByIndex(at)) {
			return false
		}
	}
	return true
}

// WithFields returns an object that has copies of the fields of from at paths, as in SameFields, and shares its other
// fields with other, which must not change any more. If the objects have no fields to compare, it returns a copy of from.
func WithFields(other, from runtime.Object, paths []string) runtime.Object {
	a, b := reflect.Indirect(reflect.ValueOf(other)), reflect.Indirect(reflect.ValueOf(from))
	if !haveFields(a, b) {
		return from.DeepCopyObject()
	}
	part, whole := reflect.New(a.Type()), reflect.New(a.Type())
	for _, path := range paths {
		if at := indexOf(a.Type(), path); at != nil {
			part.Elem().FieldByIndex(at).Set(b.FieldByIndex(at))
		}
	}
	copied := reflect.ValueOf(part.Interface().(runtime.Object).DeepCopyObject())
	whole.Elem().Set(a)
	for _, path := range paths {
		if at := indexOf(a.Type(), path); at != nil {
			whole.Elem().FieldByIndex(at).Set(copied.Elem().FieldByIndex(at))
		}
	}
	return whole.Interface().(runtime.Object)
}

// haveFields reports whether two values are structs of one type, other than of unstructured objects.
func haveFields(a, b reflect.Value) bool {
	return a.Type() == b.Type() && a.Kind() == reflect.Struct && a.Type() != reflect.TypeFor[unstructured.Unstructured]()
}

// field is a path of field names in a struct type.
type field struct {
	of   reflect.Type
	path string
}

// indexes caches the indexes of fields: a map of field to []int, nil for a field that the type lacks.
var indexes sync.Map

func indexOf(t reflect.Type, path string) []int {
	key := field{t, path}
	if known, ok := indexes.Load(key); ok {
		return known.([]int)
	}
	var index []int
	for name := range strings.SplitSeq(path, ".") {
		f, ok := reflect.StructField{}, t.Kind() == reflect.Struct
		if ok {
			f, ok = t.FieldByName(name)
		}
		if !ok {
			index = nil
			break
		}
		index, t = append(index, f.Index...), f.Type
	}
	indexes.Store(key, index)
	return index
}

// sameValue compares values of one type. API types have no cycles.
func sameValue(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return a.UnsafePointer() == b.UnsafePointer() || sameValue(a.Elem(), b.Elem())
	case reflect.Struct:
		return sameFields(a, b)
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		if a.UnsafePointer() == b.UnsafePointer() {
			return true
		}
		fallthrough
	case reflect.Array:
		for i := range a.Len() {
			if !sameValue(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		return sameMap(a, b)
	case reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return a.Elem().Type() == b.Elem().Type() && sameValue(a.Elem(), b.Elem())
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return a.Uint() == b.Uint()
	case reflect.Float32, reflect.Float64:
		return a.Float() == b.Float()
	}
	return false
}

// sameFields compares structs. Most fields of two copies of an object have the same bytes in
// memory, including strings, whose contents the copies share. Only the other fields need a closer
// comparison.
func sameFields(a, b reflect.Value) bool {
	if !a.CanAddr() || !b.CanAddr() {
		for i := range a.NumField() {
			if !sameValue(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	one, other := memory(a), memory(b)
	if bytes.Equal(one, other) {
		return true
	}
	for i, f := range placesOf(a.Type()) {
		if !bytes.Equal(one[f.from:f.to], other[f.from:f.to]) && !sameValue(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}

// memory returns the memory of an addressable value. The caller must not change it.
func memory(v reflect.Value) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v.UnsafeAddr())), v.Type().Size())
}

// place is the range of a field in its struct, in bytes.
type place struct{ from, to uintptr }

// placesOfTypes caches the places of the fields of each struct type: a map of reflect.Type to
// []place.
var placesOfTypes sync.Map

func placesOf(t reflect.Type) []place {
	if known, ok := placesOfTypes.Load(t); ok {
		return known.([]place)
	}
	places := make([]place, t.NumField())
	for i := range places {
		f := t.Field(i)
		places[i] = place{f.Offset, f.Offset + f.Type.Size()}
	}
	placesOfTypes.Store(t, places)
	return places
}

func sameMap(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	if a.Len() == 0 || a.UnsafePointer() == b.UnsafePointer() {
		return true
	}
	for members := a.MapRange(); members.Next(); {
		other := b.MapIndex(members.Key())
		if !other.IsValid() || !sameValue(members.Value(), other) {
			return false
		}
	}
	return true
}
