package deepcopy

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of returns a copy that shares no memory with the original, except through unexported fields; nil
// for nil.
func Of[T any](in *T) *T {
	if in == nil {
		return nil
	}
	out := new(T)
	Into(in, out)
	return out
}

// Into copies in to out, which then shares no memory with in. It distinguishes nil and empty slices
// and maps. Unexported fields are copied as they are: the fields of a time.Time do not change. It
// panics on a channel or a function, which no API type has.
func Into[T any](in, out *T) { into(reflect.ValueOf(in).Elem(), reflect.ValueOf(out).Elem()) }

func into(in, out reflect.Value) {
	out.Set(in)
	switch in.Kind() {
	case reflect.Pointer:
		if !in.IsNil() {
			out.Set(reflect.New(in.Type().Elem()))
			into(in.Elem(), out.Elem())
		}
	case reflect.Interface:
		if !in.IsNil() {
			value := reflect.New(in.Elem().Type()).Elem()
			into(in.Elem(), value)
			out.Set(value)
		}
	case reflect.Slice:
		if !in.IsNil() {
			out.Set(reflect.MakeSlice(in.Type(), in.Len(), in.Len()))
			elements(in, out)
		}
	case reflect.Array:
		elements(in, out)
	case reflect.Map:
		if !in.IsNil() {
			out.Set(reflect.MakeMapWithSize(in.Type(), in.Len()))
			for entry := in.MapRange(); entry.Next(); {
				value := reflect.New(in.Type().Elem()).Elem()
				into(entry.Value(), value)
				out.SetMapIndex(entry.Key(), value)
			}
		}
	case reflect.Struct:
		if in.Type() == reflect.TypeFor[metav1.FieldsV1]() {
			managed := in.Interface().(metav1.FieldsV1)
			out.Set(reflect.ValueOf(*managed.DeepCopy()))
			return
		}
		for i := range in.NumField() {
			if in.Type().Field(i).IsExported() {
				into(in.Field(i), out.Field(i))
			}
		}
	case reflect.Chan, reflect.Func:
		panic("deepcopy: a " + in.Type().String() + " cannot be copied")
	}
}

func elements(in, out reflect.Value) {
	for i := range in.Len() {
		into(in.Index(i), out.Index(i))
	}
}
