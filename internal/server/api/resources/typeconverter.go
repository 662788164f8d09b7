package resources

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/gatehouse-dev/gatehouse/admission/initializers"
)

// NewTypeConverter returns a converter for server-side apply that is built by
// the first request that needs it and shows metadata.initializers to it. The
// schemas that build returns must know the field.
func NewTypeConverter(build func() (managedfields.TypeConverter, error)) managedfields.TypeConverter {
	return &typeConverter{build: sync.OnceValues(build)}
}

type typeConverter struct {
	build func() (managedfields.TypeConverter, error)
}

func (c *typeConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	inner, err := c.build()
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

func (c *typeConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	inner, err := c.build()
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
