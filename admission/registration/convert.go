package registration

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Convert returns a webhook configuration, or a list of them, in version v1 or v1beta1. Every field
// has its counterpart (S1.2), and nothing is defaulted. The result is obj itself if it has the
// version, and otherwise shares memory with obj. It is an error if obj is neither, or the version
// is unknown.
func Convert(obj runtime.Object, version string) (runtime.Object, error) {
	kinds, _, err := known().ObjectKinds(obj)
	if _, untyped := obj.(runtime.Unstructured); err != nil || untyped || !strings.Contains(kinds[0].Kind, "WebhookConfiguration") {
		return nil, fmt.Errorf("%T is not a webhook configuration", obj)
	}
	wanted := kinds[0].GroupKind().WithVersion(version)
	out, err := known().New(wanted)
	if err != nil {
		return nil, fmt.Errorf("webhook configurations have no version %q", version)
	}
	if kinds[0] == wanted {
		return obj, nil
	}
	assign(reflect.ValueOf(obj), reflect.ValueOf(out))
	out.GetObjectKind().SetGroupVersionKind(wanted)
	return out, nil
}

// recast converts a value to a type whose fields have the same names, such as the type of another
// version. Both share memory.
func recast[To any](in any) To {
	var out To
	assign(reflect.ValueOf(in), reflect.ValueOf(&out).Elem())
	return out
}

// assign sets out to in. It panics if out lacks a field of in.
func assign(in, out reflect.Value) {
	switch {
	case in.Type().ConvertibleTo(out.Type()):
		out.Set(in.Convert(out.Type()))
	case in.Kind() == reflect.Pointer && in.IsNil(), in.Kind() == reflect.Slice && in.IsNil():
	case in.Kind() == reflect.Pointer:
		if out.IsNil() {
			out.Set(reflect.New(out.Type().Elem()))
		}
		assign(in.Elem(), out.Elem())
	case in.Kind() == reflect.Slice:
		out.Set(reflect.MakeSlice(out.Type(), in.Len(), in.Len()))
		for i := range in.Len() {
			assign(in.Index(i), out.Index(i))
		}
	default:
		for i := range in.NumField() {
			assign(in.Field(i), out.FieldByName(in.Type().Field(i).Name))
		}
	}
}

// each maps a slice; nil stays nil.
func each[From, To any](in []From, f func(*From) To) []To {
	if in == nil {
		return nil
	}
	out := make([]To, len(in))
	for i := range in {
		out[i] = f(&in[i])
	}
	return out
}
