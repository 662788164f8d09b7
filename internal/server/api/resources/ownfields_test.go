package resources

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
)

// mutator is a mutating plugin.
type mutator func(metav1.Object) error

func (mutator) Handles(admission.Operation) bool { return true }

func (m mutator) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	object, _ := a.GetObject().(metav1.Object)
	return m(object)
}

// warnings are the warnings that a client gets.
type warnings struct{ texts []string }

func (w *warnings) AddWarning(_, text string) { w.texts = append(w.texts, text) }

// storing is a storage that keeps the object that it gets.
type storing struct{ got runtime.Object }

func (*storing) New() runtime.Object { return nil }

func (*storing) Destroy() {}

func (s *storing) Create(_ context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	s.got = obj
	return obj, nil
}

func (s *storing) Update(ctx context.Context, _ string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions) (obj runtime.Object, created bool, err error) {
	s.got, err = info.UpdatedObject(ctx, nil)
	return s.got, false, err
}

// The stored object and the warnings are the same with and without the check of k8s.io/apiserver
// for managed fields that admission left as they were.
func TestManagedFieldsThatAdmissionLeavesNeedNoCheck(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	valid := func() []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{entry("one", metav1.ManagedFieldsOperationUpdate, `{"f:data":{}}`), entry("two", metav1.ManagedFieldsOperationApply, `{"f:metadata":{}}`)}
	}
	stored := []metav1.ManagedFieldsEntry{entry("old", "Nothing", `{`)}
	denied := errors.New("denied")
	for _, fields := range []struct {
		name string
		of   func() []metav1.ManagedFieldsEntry
		// fast means that k8s.io/apiserver need not check them.
		fast bool
	}{
		{"encoded", valid, true},
		{"none", func() []metav1.ManagedFieldsEntry { return nil }, false},
		{"those of the stored object", func() []metav1.ManagedFieldsEntry { return stored }, false},
	} {
		for _, plugin := range []struct {
			name   string
			mutate mutator
			leaves bool
		}{
			{"leaves the object", func(metav1.Object) error { return nil }, true},
			{"changes a label", func(o metav1.Object) error { o.SetLabels(map[string]string{"a": "b"}); return nil }, true},
			{"denies", func(metav1.Object) error { return denied }, false},
			{"removes the fields", func(o metav1.Object) error { o.SetManagedFields(nil); return nil }, false},
			{"changes the fields to valid ones", func(o metav1.Object) error { o.SetManagedFields(valid()[:1]); return nil }, false},
			{"changes the fields to others", func(o metav1.Object) error {
				o.SetManagedFields([]metav1.ManagedFieldsEntry{entry("x", metav1.ManagedFieldsOperationApply, `{"f:`)})
				return nil
			}, false},
			{"changes a manager in its place", func(o metav1.Object) error {
				for i := range o.GetManagedFields() {
					o.GetManagedFields()[i].APIVersion = ""
				}
				return nil
			}, false},
		} {
			for _, custom := range []bool{false, true} {
				for _, operation := range []admission.Operation{admission.Create, admission.Update} {
					t.Run(fmt.Sprintf("%s, %s, custom %t, %s", fields.name, plugin.name, custom, operation), func(t *testing.T) {
						run := func(own bool) (got string, taken bool) {
							made := func(of []metav1.ManagedFieldsEntry) runtime.Object {
								if custom {
									u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
									u.SetManagedFields(of)
									return u
								}
								return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: of}}
							}
							var told warnings
							ctx := warning.WithWarningRecorder(t.Context(), &told)
							obj := made(fields.of())
							a := admission.NewAttributesRecord(obj, made(stored), schema.GroupVersionKind{}, "ns", "name", schema.GroupVersionResource{}, "", operation, nil, false, nil)
							kept := &storing{}
							var chain admission.Interface = plugin.mutate
							o := &ownFields{Interface: chain}
							if own {
								chain = o
							}
							admit := func(ctx context.Context, obj, _ runtime.Object) (runtime.Object, error) {
								err := fieldmanager.NewManagedFieldsValidatingAdmissionController(chain).(admission.MutationInterface).Admit(ctx, a, nil)
								taken = o.taken != nil
								return obj, err
							}
							var err error
							if operation == admission.Update {
								u := &call{Endpoint: &Endpoint{Storage: kept}, own: o}
								_, _, err = u.Update(ctx, "name", rest.DefaultUpdatedObjectInfo(obj, admit), nil, nil, false, nil)
							} else if _, err = admit(ctx, obj, nil); err == nil {
								_, err = (&call{Endpoint: &Endpoint{Storage: kept}, own: o}).Create(ctx, obj, nil, nil)
							}
							return fmt.Sprintf("%v %v", err, told.texts) + cmp.Diff(nil, kept.got), taken
						}
						got, taken := run(true)
						if want, _ := run(false); got != want {
							t.Errorf("got %s\nwant %s", got, want)
						}
						if want := fields.fast && plugin.leaves && !custom; taken != want {
							t.Errorf("fields that the library does not check: %t, want %t", taken, want)
						}
					})
				}
			}
		}
	}
}

// An object that is too large is stored without its managed fields at the second try.
func TestManagedFieldsOfATooLargeObjectStayAway(t *testing.T) {
	o := &ownFields{Interface: mutator(func(metav1.Object) error { return nil })}
	for attempt := range 2 {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
		kept := &storing{}
		u := &call{Endpoint: &Endpoint{Storage: kept}, own: o}
		info := rest.DefaultUpdatedObjectInfo(obj, func(ctx context.Context, obj, _ runtime.Object) (runtime.Object, error) {
			a := admission.NewAttributesRecord(obj, nil, schema.GroupVersionKind{}, "ns", "name", schema.GroupVersionResource{}, "", admission.Update, nil, false, nil)
			return obj, o.Admit(ctx, a, nil)
		}, func(_ context.Context, obj, _ runtime.Object) (runtime.Object, error) {
			if attempt == 1 {
				obj.(*corev1.ConfigMap).ManagedFields = nil
			}
			return obj, nil
		})
		if _, _, err := u.Update(t.Context(), "name", info, nil, nil, false, nil); err != nil {
			t.Fatal(err)
		}
		if got, want := len(kept.got.(*corev1.ConfigMap).ManagedFields), 1-attempt; got != want {
			t.Errorf("attempt %d: %d managed fields, want %d", attempt+1, got, want)
		}
	}
}
