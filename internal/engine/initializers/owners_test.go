package initializers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// No manager owns a field that the server has removed.
func TestRemovedFieldIsOwnedByNobody(t *testing.T) {
	const pending = `"f:initializers":{".":{},"f:pending":{"k:{\"name\":\"a.example.com\"}":{".":{},"f:name":{}}}}`
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	before := []metav1.ManagedFieldsEntry{
		entry("creator", `{"f:data":{"f:x":{}},"f:metadata":{`+pending+`,"f:labels":{"f:l":{}}}}`),
		entry("no metadata left", `{"f:data":{"f:y":{}},"f:metadata":{`+pending+`}}`),
		entry("nothing left", `{"f:metadata":{`+pending+`}}`),
		entry("no initializers", `{"f:data":{"f:z":{}}}`),
		entry("a template", `{"f:spec":{"f:template":{"f:metadata":{`+pending+`}}}}`),
		entry("no JSON", `f:initializers`),
		{Manager: "no fields"},
	}
	want := []metav1.ManagedFieldsEntry{
		entry("creator", `{"f:data":{"f:x":{}},"f:metadata":{"f:labels":{"f:l":{}}}}`),
		entry("no metadata left", `{"f:data":{"f:y":{}}}`),
		before[3], before[4], before[5], before[6],
	}
	field := &Initializers{Pending: []Initializer{{Name: "a.example.com"}}}
	typed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "o", ManagedFields: before}}
	Set(typed, field)
	shared := typed.DeepCopy()
	typed.ManagedFields = shared.ManagedFields
	Set(typed, nil)
	if diff := cmp.Diff(want, typed.ManagedFields); diff != "" {
		t.Errorf("a typed object (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, shared.ManagedFields); diff != "" {
		t.Errorf("memory that the object shared was written to (-want +got):\n%s", diff)
	}

	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: before[:3]}})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	setUnstructured(u, field)
	Set(u, nil)
	if diff := cmp.Diff(want[:2], u.GetManagedFields()); diff != "" {
		t.Errorf("an unstructured object (-want +got):\n%s", diff)
	}
}
