package rejection

import (
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// typeOf returns the Go type of a built-in kind; nil for a custom resource.
func typeOf(kind schema.GroupVersionKind) reflect.Type {
	if kind == apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
		return reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]()
	}
	typed, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil
	}
	return reflect.TypeOf(typed)
}

// TakeLater removes from an object the fields that do not exist in an emulated release, and returns their paths.
// fields are the fields that differ between the releases; nil if none do. A server that emulates the release knows them, and silently drops or
// keeps them; the strict decoder of a server of the release itself rejects the object (S26.12).
func TakeLater(fields *emulation.Fields, content map[string]any, kind schema.GroupVersionKind) (later []string) {
	of := typeOf(kind)
	if fields == nil || of == nil {
		return nil
	}
	return fields.Remove(content, of)
}
