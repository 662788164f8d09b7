package resources

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// NewTypeConverter returns a converter for server-side apply that shows
// metadata.initializers to the converter that get returns, whose schemas must know the field.
// It calls get for each object. get must return the same converter for all objects of a
// request.
func NewTypeConverter(get func() (managedfields.TypeConverter, error)) managedfields.TypeConverter {
	return typeConverter{get}
}

type typeConverter struct {
	get func() (managedfields.TypeConverter, error)
}

func (c typeConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	inner, err := c.get()
	if err != nil {
		return nil, err
	}
	if !initializers.Has(obj) {
		return inner.ObjectToTyped(obj, opts...)
	}
	var content map[string]any
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content = u.DeepCopy().Object
	} else if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
		return nil, err
	}
	if err := initializers.Expose(content); err != nil {
		return nil, err
	}
	return inner.ObjectToTyped(&unstructured.Unstructured{Object: content}, opts...)
}

func (c typeConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
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
