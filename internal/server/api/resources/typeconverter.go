package resources

import (
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// NewTypeConverter returns a converter for server-side apply that presents metadata.initializers to
// the converter that get returns, whose schemas must have the field. It calls get for each object.
// get must return the same converter for all objects of a request, and always the same for objects
// of Go types.
func NewTypeConverter(get func() (managedfields.TypeConverter, error)) managedfields.TypeConverter {
	return &typeConverter{get: get}
}

type typeConverter struct {
	get func() (managedfields.TypeConverter, error)
	// known has the kinds whose objects are Go values, by the type of the values.
	known sync.Map
}

// kind is a kind with its type in the schemas.
type kind struct {
	schema.GroupVersionKind
	typed.ParseableType
}

// ObjectToTyped implements managedfields.TypeConverter. A value of a Go type has only the fields of its
// schema. A write, which may have duplicates in lists, therefore need not be validated against the schema:
// field managers compare the value next, and see the same errors.
func (c *typeConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if initializers.Has(obj) {
		return c.exposed(obj, opts...)
	}
	if _, ok := obj.(runtime.Unstructured); ok || !slices.Contains(opts, typed.AllowDuplicates) {
		return c.validated(obj, opts...)
	}
	of, gvk := reflect.TypeOf(obj), obj.GetObjectKind().GroupVersionKind()
	if found, ok := c.known.Load(of); ok {
		if k := found.(*kind); k.GroupVersionKind == gvk {
			v, err := value.NewValueReflect(obj)
			if err != nil {
				return nil, err
			}
			//lint:ignore SA1019 Its comment calls validation cheap: it is half of the time of BenchmarkManagedFields.
			return typed.AsTypedUnvalidated(v, k.Schema, k.TypeRef), nil
		}
	}
	out, err := c.validated(obj, opts...)
	if err == nil {
		c.known.Store(of, &kind{gvk, typed.ParseableType{TypeRef: out.TypeRef(), Schema: out.Schema()}})
	}
	return out, err
}

func (c *typeConverter) validated(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	inner, err := c.get()
	if err != nil {
		return nil, err
	}
	return inner.ObjectToTyped(obj, opts...)
}

// exposed converts an object that has initializers.
func (c *typeConverter) exposed(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	var content map[string]any
	var err error
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content = u.DeepCopy().Object
	} else if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
		return nil, err
	}
	if err := initializers.Expose(content); err != nil {
		return nil, err
	}
	return c.validated(&unstructured.Unstructured{Object: content}, opts...)
}

// TypedToObject implements managedfields.TypeConverter.
func (c *typeConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	inner, err := c.get()
	if err != nil {
		return nil, err
	}
	obj, err := inner.TypedToObject(value)
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && initializers.Has(obj) {
		// The object shares its content with the value, which is used again.
		u = u.DeepCopy()
		obj = u
		if _, err := initializers.Hide(u.Object); err != nil {
			return nil, err
		}
	}
	return obj, nil
}
