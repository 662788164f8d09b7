package admission

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// randomParams are the params of policies. The kinds ConfigMap, which is namespaced, and Limit,
// which is not, are served, whether or not there are objects.
type randomParams []*unstructured.Unstructured

func (p randomParams) Scope(_ context.Context, kind schema.GroupVersionKind) (namespaced, served bool, err error) {
	switch kind {
	case schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}:
		return true, true, nil
	case schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Limit"}:
		return false, true, nil
	}
	return false, false, nil
}

func (p randomParams) Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
	for _, u := range p {
		if u.GroupVersionKind() == kind && u.GetNamespace() == namespace && u.GetName() == name {
			return u, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "params"}, name)
}

func (p randomParams) List(_ context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	var list []runtime.Object
	sorted := slices.SortedFunc(slices.Values(p), func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for _, u := range sorted {
		if u.GroupVersionKind() == kind && u.GetNamespace() == namespace && selector.Matches(labels.Set(u.GetLabels())) {
			list = append(list, u)
		}
	}
	return list, nil
}
