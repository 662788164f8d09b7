package plan

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// labelsOf returns the labels of an object; false if there is no object or it has no metadata.
func labelsOf(obj runtime.Object) (labels.Labels, bool) {
	if obj == nil {
		return nil, false
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		metadata, _ := u.Object["metadata"].(map[string]any)
		content, _ := metadata["labels"].(map[string]any)
		return rawLabels(content), true
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, false
	}
	return labels.Set(m.GetLabels()), true
}

// rawLabels are the labels of an unstructured object, without a copy. A value that is not a
// string does not count as a label.
type rawLabels map[string]any

func (l rawLabels) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

func (l rawLabels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

func (l rawLabels) Lookup(key string) (string, bool) {
	value, ok := l[key].(string)
	return value, ok
}
