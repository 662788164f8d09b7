package resources

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

// kindsOf are the kinds of the built-in API that have metadata and a type.
func kindsOf(t testing.TB, types managedfields.TypeConverter) (list []schema.GroupVersionKind) {
	for gvk := range scheme.Scheme.AllKnownTypes() {
		obj, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		_, unknown := types.ObjectToTyped(obj)
		if m, err := meta.Accessor(obj); err == nil && m != nil && unknown == nil {
			list = append(list, gvk)
		}
	}
	return list
}

// fieldManager is upstream's, with a converter.
func fieldManager(t testing.TB, c managedfields.TypeConverter, gvk schema.GroupVersionKind) *managedfields.FieldManager {
	m, err := managedfields.NewDefaultFieldManager(c, scheme.Scheme, scheme.Scheme, scheme.Scheme, gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fewTexts generates only a few texts, including the empty one, so that elements of lists have
// equal keys, or none.
func fewTexts(serializer.CodecFactory) []any {
	return []any{
		func(s *string, c randfill.Continue) { *s = []string{"", "a", "b", "c"}[c.Intn(4)] },
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(m)
			m.ManagedFields = nil
		},
		func(e *runtime.RawExtension, _ randfill.Continue) { e.Raw = []byte(`{"a":[1]}`) },
	}
}

// The managed fields of a write are the same whether its object is validated against its schema, as
// upstream does, or not. This includes objects whose lists have duplicates, or elements without a key.
func TestManagedFieldsNeedNoValidation(t *testing.T) {
	whole := applyconfigurations.NewTypeConverter(scheme.Scheme)
	ours := NewTypeConverter(func() (managedfields.TypeConverter, error) { return whole, nil })
	kinds := kindsOf(t, whole)
	if len(kinds) < 100 {
		t.Fatalf("%d kinds", len(kinds))
	}
	managed, failed := 0, 0
	for i, gvk := range kinds {
		theirs, own := fieldManager(t, whole, gvk), fieldManager(t, ours, gvk)
		fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fewTexts), rand.NewSource(int64(i)), scheme.Codecs)
		made := func() runtime.Object {
			obj, err := scheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			fill.Fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			return obj
		}
		for range 8 {
			empty, err := scheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			first, second := made(), made()
			var got [2][]metav1.ManagedFieldsEntry
			for k, m := range []*managedfields.FieldManager{theirs, own} {
				live := m.UpdateNoErrors(empty.DeepCopyObject(), first.DeepCopyObject(), "one")
				got[k] = fieldsOf(t, m.UpdateNoErrors(live, second.DeepCopyObject(), "two"))
			}
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				text, _ := json.Marshal([]any{first, second})
				t.Fatalf("%s (-validated +not):\n%s\n%s", gvk, diff, text)
			}
			if len(got[0]) > 0 {
				managed++
			} else {
				failed++
			}
		}
	}
	t.Logf("%d objects with managed fields, %d without", managed, failed)
	if managed == 0 || failed == 0 {
		t.Error("both kinds of objects are expected")
	}
}

// fieldsOf are the managed fields of an object, without times.
func fieldsOf(t *testing.T, obj runtime.Object) []metav1.ManagedFieldsEntry {
	m, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	list := m.GetManagedFields()
	for i := range list {
		list[i].Time = nil
	}
	return list
}

// BenchmarkManagedFields measures the managed fields of a pod whose label changes.
func BenchmarkManagedFields(b *testing.B) {
	whole := applyconfigurations.NewTypeConverter(scheme.Scheme)
	ours := NewTypeConverter(func() (managedfields.TypeConverter, error) { return whole, nil })
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	container := corev1.Container{Name: "web", Image: "web:1", Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"}},
		Env: []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}}, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{container}, Volumes: []corev1.Volume{{Name: "data"}}, RestartPolicy: "Always", DNSPolicy: "ClusterFirst"}}
	pod.SetGroupVersionKind(gvk)
	for name, c := range map[string]managedfields.TypeConverter{"validated=true": whole, "validated=false": ours} {
		b.Run(name, func(b *testing.B) {
			m := fieldManager(b, c, gvk)
			live := m.UpdateNoErrors(reflect.New(reflect.TypeOf(pod).Elem()).Interface().(runtime.Object), pod.DeepCopy(), "one").(*corev1.Pod)
			b.ReportAllocs()
			for b.Loop() {
				next := live.DeepCopy()
				next.Labels["app"] = "other"
				m.UpdateNoErrors(live, next, "two")
			}
		})
	}
}
