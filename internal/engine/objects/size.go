package objects

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// sizeOfMap estimates the memory of a map without its keys and values.
const sizeOfMap = 48

// Size estimates the memory of an object in bytes, including the strings that it shares with other
// objects.
func Size(obj runtime.Object) int { return sizeOf(reflect.ValueOf(obj)) }

// sizeOf returns the size of the memory to which a value refers, without the value itself. API
// types have no cycles.
func sizeOf(v reflect.Value) int {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int(v.Elem().Type().Size()) + sizeOf(v.Elem())
	case reflect.Struct:
		size := 0
		for i := range v.NumField() {
			size += sizeOf(v.Field(i))
		}
		return size
	case reflect.Slice, reflect.Array:
		size := 0
		if v.Kind() == reflect.Slice {
			size = v.Cap() * int(v.Type().Elem().Size())
		}
		switch v.Type().Elem().Kind() {
		case reflect.String, reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Slice, reflect.Map:
			for i := range v.Len() {
				size += sizeOf(v.Index(i))
			}
		}
		return size
	case reflect.Map:
		if v.Len() == 0 {
			return 0
		}
		t := v.Type()
		size := sizeOfMap + 2*v.Len()*int(t.Key().Size()+t.Elem().Size())
		for members := v.MapRange(); members.Next(); {
			size += sizeOf(members.Key()) + sizeOf(members.Value())
		}
		return size
	}
	return 0
}
