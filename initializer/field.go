package initializer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Failure is an error that ends the initialization of an object.
type Failure struct {
	// Status is the error that the creator of the object gets. Its code is the HTTP status code;
	// 0 means 500.
	Status metav1.Status
}

func (f *Failure) Error() string { return "initialization failed: " + f.Status.Message }

// Fail returns a *Failure with the code, and the reason and message that the
// creator of the object gets.
func Fail(code int32, reason metav1.StatusReason, format string, args ...any) error {
	return &Failure{metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

// pendingOf returns the names in metadata.initializers.pending of an object. An object with a
// failure result has none, since no initializer may act on it.
func pendingOf(u *unstructured.Unstructured) []string {
	field, found, err := unstructured.NestedFieldNoCopy(u.Object, "metadata", "initializers")
	initializers, ok := field.(map[string]any)
	if err != nil || !found || !ok || initializers["result"] != nil {
		return nil
	}
	list, _ := initializers["pending"].([]any)
	names := make([]string, 0, len(list))
	for _, entry := range list {
		m, _ := entry.(map[string]any)
		name, _ := m["name"].(string)
		names = append(names, name)
	}
	return names
}

// position returns the index of an initializer among the pending ones, -1 if it is not pending.
func position(u *unstructured.Unstructured, name string) int {
	return slices.Index(pendingOf(u), name)
}

// claimOf returns the list metadata.initializers.paired with a claim of the initializer, and whether it has
// claimed already. It is an error if the object did not get the finalizer together with the name.
func claimOf(u *unstructured.Unstructured, name, finalizer string) (pairs []any, claimed bool, err error) {
	pairs, _, _ = unstructured.NestedSlice(u.Object, "metadata", "initializers", "paired")
	for _, entry := range pairs {
		pair, _ := entry.(map[string]any)
		if pair["name"] == name && pair["finalizer"] == finalizer {
			claimed, _ = pair["claimed"].(bool)
			pair["claimed"] = true
			return pairs, claimed, nil
		}
	}
	return nil, false, fmt.Errorf("object %q waits for initializer %q without finalizer %q: register the initializer with that finalizer", u.GetName(), name, finalizer)
}

// nameOf returns the part of an object that is kept if the controller has no work on it.
func nameOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	s := &unstructured.Unstructured{Object: map[string]any{}}
	s.SetAPIVersion(u.GetAPIVersion())
	s.SetKind(u.GetKind())
	s.SetName(u.GetName())
	s.SetNamespace(u.GetNamespace())
	s.SetUID(u.GetUID())
	s.SetResourceVersion(u.GetResourceVersion())
	return s
}

// patchOf returns the merge patch that turns stored into next and removes the name from its list,
// or sets the failure's status. The patch applies only to exactly the stored state.
func patchOf(stored, next *unstructured.Unstructured, name string, failed *Failure) ([]byte, error) {
	field, found, err := unstructured.NestedMap(stored.Object, "metadata", "initializers")
	if err != nil || !found {
		return nil, fmt.Errorf("object %q has no initializers", stored.GetName())
	}
	if failed != nil {
		status := failed.Status
		status.Status = metav1.StatusFailure
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
		if field["result"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&status); err != nil {
			return nil, fmt.Errorf("status of the failure: %w", err)
		}
	} else {
		list, _ := field["pending"].([]any)
		field["pending"] = slices.DeleteFunc(list, func(entry any) bool {
			m, _ := entry.(map[string]any)
			return m["name"] == name
		})
	}
	unstructured.RemoveNestedField(next.Object, "metadata", "initializers")
	before := maps.Clone(stored.Object)
	metadata, ok := stored.Object["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("object without metadata")
	}
	plain := make(map[string]any, len(metadata))
	for k, v := range metadata {
		if k != "initializers" {
			plain[k] = v
		}
	}
	before["metadata"] = plain
	patch := difference(before, next.Object)
	changes, _ := patch["metadata"].(map[string]any)
	if changes == nil {
		changes = map[string]any{}
		patch["metadata"] = changes
	}
	if list, _ := field["pending"].([]any); len(list) == 0 && field["result"] == nil {
		changes["initializers"] = nil
	} else {
		changes["initializers"] = field
	}
	changes["resourceVersion"] = stored.GetResourceVersion()
	changes["uid"] = string(stored.GetUID())
	return json.Marshal(patch)
}

// difference returns the merge patch from one object's content to another's.
func difference(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key, after := range to {
		before, ok := from[key]
		if ok && reflect.DeepEqual(before, after) {
			continue
		}
		a, isMap := after.(map[string]any)
		b, wasMap := before.(map[string]any)
		if isMap && wasMap {
			patch[key] = difference(b, a)
		} else {
			patch[key] = after
		}
	}
	for key := range from {
		if _, ok := to[key]; !ok {
			patch[key] = nil
		}
	}
	return patch
}
