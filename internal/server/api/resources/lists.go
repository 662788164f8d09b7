package resources

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

const (
	// maxCompared bounds how many pairs of list elements a strategic merge patch may compare: each element of the patch
	// is searched in the list of the object, and in the elements that the patch has added to it (S27.14).
	maxCompared = 64 << 20
	// fewElements is the number of list elements in a patch up to which pairs are not counted.
	fewElements = 1000
)

// boundLists returns the storage for a strategic merge patch, which refuses a patch with too many pairs of list elements.
func boundLists(storage rest.Patcher, patch []byte) rest.Patcher {
	elements, longest := listElements(patch)
	if elements <= fewElements {
		return storage
	}
	return listPatcher{storage, elements, longest}
}

// listElements counts the elements of all lists in a JSON text, and of the longest list. Elements of objects that
// are added to a list count only there.
func listElements(text []byte) (elements, longest int) {
	// lengths has the length of each list around the current position, -1 for an object.
	var lengths []int
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{':
			lengths = append(lengths, -1)
		case '[':
			lengths = append(lengths, 1)
		case ',':
			if last := len(lengths) - 1; last >= 0 && lengths[last] > 0 {
				lengths[last]++
			}
		case '}', ']':
			if last := len(lengths) - 1; last >= 0 {
				elements += max(lengths[last], 0)
				longest = max(longest, lengths[last])
				lengths = lengths[:last]
			}
		}
	}
	return elements, longest
}

// listPatcher is a storage for a strategic merge patch with many list elements.
type listPatcher struct {
	rest.Patcher
	elements, longest int
}

func (p listPatcher) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return p.Patcher.Update(ctx, name, listUpdate{obj, p}, validateCreate, validate, force, options)
}

type listUpdate struct {
	rest.UpdatedObjectInfo
	patch listPatcher
}

func (u listUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	if longest := longestList(reflect.ValueOf(old)) + u.patch.longest; u.patch.elements > maxCompared/longest {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d pairs of list elements of the patch and the object", maxCompared))
	}
	return u.UpdatedObjectInfo.UpdatedObject(ctx, old)
}

// longestList returns the length of the longest list in a value of a Kubernetes type.
func longestList(v reflect.Value) (longest int) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return longestList(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			longest = max(longest, longestList(v.Field(i)))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0
		}
		longest = v.Len()
		for i := range v.Len() {
			longest = max(longest, longestList(v.Index(i)))
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			longest = max(longest, longestList(entries.Value()))
		}
	}
	return longest
}
