package objects

import (
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// somePod returns a pod as it arrives at admission.
func somePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Labels: map[string]string{"a/b": "c", "x~y": "z"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{
				{Name: "one", Image: "i", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}},
				{Name: "two", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "B"}}},
			},
			Tolerations: []corev1.Toleration{{Key: "k", Operator: "Exists"}},
		},
	}
}

// A difference names the fields that changed, and converts one object to the other.
func TestADifferenceMakesOneObjectOfTheOther(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod)
		want   string
	}{
		{"nothing changed", func(*corev1.Pod) {}, ``},
		{"an empty list is none", func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{} }, ``},
		{"the same quantity, written otherwise", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("1000m")
		}, ``},
		{"a field set", func(p *corev1.Pod) { n := int32(2000000000); p.Spec.Priority = &n }, `[{"op":"add","path":"/spec/priority","value":2000000000}]`},
		{"a field replaced", func(p *corev1.Pod) { p.Spec.Containers[1].Image = "j" }, `[{"op":"replace","path":"/spec/containers/1/image","value":"j"}]`},
		{"a field removed", func(p *corev1.Pod) { p.Spec.Tolerations = nil }, `[{"op":"remove","path":"/spec/tolerations"}]`},
		{"elements appended", func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "l"}, corev1.Toleration{Key: "m"})
		}, `[{"op":"add","path":"/spec/tolerations/1","value":{"key":"l"}},{"op":"add","path":"/spec/tolerations/2","value":{"key":"m"}}]`},
		{"elements taken off", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:0] }, `[{"op":"remove","path":"/spec/containers/1"},{"op":"remove","path":"/spec/containers/0"}]`},
		{"an element taken off", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }, `[{"op":"remove","path":"/spec/containers/1"}]`},
		{"keys are escaped", func(p *corev1.Pod) { p.Labels["a/b"], p.Labels["x~y"] = "1", "2" },
			`[{"op":"replace","path":"/metadata/labels/a~1b","value":"1"},{"op":"replace","path":"/metadata/labels/x~0y","value":"2"}]`},
		{"initializers are the field that users see", func(p *corev1.Pod) {
			initializers.Set(p, &initializers.Initializers{Pending: []initializers.Initializer{{Name: "a.example.com"}}})
		},
			`[{"op":"add","path":"/metadata/initializers","value":{"pending":[{"name":"a.example.com"}]}}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := somePod(), somePod()
			tt.change(after)
			got, err := Difference(before, after, corev1.SchemeGroupVersion.WithKind("Pod"), admission.NewObjectInterfacesFromScheme(scheme.Scheme))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Fatalf("got  %s\nwant %s", got, tt.want)
			}
			if got == nil {
				return
			}
			patch, err := jsonpatch.DecodePatch(got)
			if err != nil {
				t.Fatal(err)
			}
			patched, err := patch.Apply(mustEncode(t, before))
			if err != nil {
				t.Fatalf("%s does not apply: %v", got, err)
			}
			if !jsonpatch.Equal(patched, mustEncode(t, after)) {
				t.Errorf("patched %s\nwant    %s", patched, mustEncode(t, after))
			}
		})
	}
}

func mustEncode(t *testing.T, obj runtime.Object) []byte {
	t.Helper()
	data, err := encodeObject(obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func BenchmarkDifference(b *testing.B) {
	o := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	before, same, other := somePod(), somePod(), somePod()
	other.Spec.PriorityClassName = "high"
	for name, after := range map[string]*corev1.Pod{"changed=false": same, "changed=true": other} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				patch, err := Difference(before, after, kind, o)
				if err != nil || (patch != nil) != (after == other) {
					b.Fatal(patch, err)
				}
			}
		})
	}
	b.Run("copy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if before.DeepCopyObject() == nil {
				b.Fatal("no copy")
			}
		}
	})
}
