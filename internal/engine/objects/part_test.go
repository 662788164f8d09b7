package objects

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// S5.4 S5.5: a patch that changes only some members of an object has the same result as by means of
// the whole object's JSON: the same object, the same answer to whether anything changed, the same
// error.
func TestAPatchOfSomeMembersIsThatOfTheWhole(t *testing.T) {
	meta := metav1.ObjectMeta{
		Name: "o", Namespace: "ns", UID: "1", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{},
		CreationTimestamp: metav1.NewTime(time.Unix(1e9, 5)),
		ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "m", Time: &metav1.Time{Time: time.Unix(1e9, 5)}}},
	}
	container := corev1.Container{
		Name: "c", Image: "i", Ports: []corev1.ContainerPort{},
		Resources:     corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1000m")}},
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}},
	}
	replicas := int32(3)
	kinds := map[string]runtime.Object{
		"v1 ConfigMap": &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": "v", "é<": "\x01"}, BinaryData: map[string][]byte{}},
		"v1 Secret":    &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"k": {0, 1}}, Type: "Opaque"},
		"v1 Pod":       &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{container}}, Status: corev1.PodStatus{Phase: "Pending"}},
		"apps/v1 Deployment": &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}}},
	}
	patches := []struct {
		patch string
		// whole reports whether the patch needs the whole object.
		whole bool
	}{
		{patch: `[{"op":"add","path":"/metadata/labels/x","value":"y"}]`},
		{patch: `[{"op":"add","path":"/metadata/labels/a","value":"b"}]`},
		{patch: `[{"op":"add","path":"/metadata/annotations","value":{"x":"y"}}]`},
		{patch: `[{"op":"add","path":"/metadata/annotations","value":{}}]`},
		{patch: `[{"op":"add","path":"/metadata/annotations/x","value":"y"}]`},
		{patch: `[{"op":"remove","path":"/metadata/labels"}]`},
		{patch: `[{"op":"remove","path":"/metadata"}]`},
		{patch: `[{"op":"replace","path":"/metadata/creationTimestamp","value":null}]`},
		{patch: `[{"op":"test","path":"/metadata/name","value":"o"}]`},
		{patch: `[{"op":"test","path":"/metadata/name","value":"other"}]`},
		{patch: `[{"op":"add","path":"/metadata/labels","value":5}]`},
		{patch: `[{"op":"add","path":"/metadata/unknown","value":5}]`},
		{patch: `[{"op":"add","path":"/unknown","value":5}]`},
		{patch: `[{"op":"remove","path":"/unknown"}]`},
		{patch: `[{"op":"add","path":"/data","value":{"n":"w"}}]`},
		{patch: `[{"op":"add","path":"/data/n","value":"dw=="}]`},
		{patch: `[{"op":"remove","path":"/data"}]`},
		{patch: `[{"op":"move","from":"/data/k","path":"/metadata/labels/moved"}]`},
		{patch: `[{"op":"copy","from":"/metadata/name","path":"/metadata/generateName"}]`},
		{patch: `[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar"}}]`},
		{patch: `[{"op":"add","path":"/spec/replicas","value":4}]`},
		{patch: `[{"op":"replace","path":"/spec/replicas","value":"many"}]`},
		{patch: `[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"add","path":"/spec/paused","value":true}]`},
		{patch: `[{"op":"add","path":"/status","value":{}}]`},
		{patch: `[{"op":"replace","path":"/kind","value":"Other"}]`},
		{patch: `[{"op":"remove","path":"/apiVersion"}]`},
		{patch: `[{"op":"add","path":"/metadata~1labels","value":1}]`},
		{patch: `[{"op":"add","path":"metadata/labels/x","value":"y"}]`, whole: true},
		{patch: `[{"op":"replace","path":"","value":{}}]`, whole: true},
		{patch: `[{"op":"copy","from":"","path":"/metadata/labels/x"}]`, whole: true},
		{patch: `[{"op":"add","value":1}]`, whole: true},
	}
	i := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	outcome := func(changed bool, object runtime.Object, err error) string {
		if err != nil {
			return "error: " + err.Error()
		}
		if !changed {
			return "not changed"
		}
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for kind, object := range kinds {
		gvk := schema.FromAPIVersionAndKind(cut(kind))
		object.GetObjectKind().SetGroupVersionKind(gvk)
		for _, c := range patches {
			t.Run(fmt.Sprintf("S5.4 S5.5 %s %s", kind, c.patch), func(t *testing.T) {
				p, err := review.DecodePatch([]byte(c.patch))
				if err != nil {
					t.Fatal(err)
				}
				before := object.DeepCopyObject()
				s := &Set{a: admission.NewAttributesRecord(object, nil, gvk, "ns", "o", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil), o: i}
				wholeChanged, wholeObject, wholeErr := s.patchedWhole(&Form{kind: gvk, object: object}, &patching{ctx: t.Context(), patch: p, edits: new([]review.Edit)})
				changed, patched, ok, err := s.patchedPart(&Form{kind: gvk, object: object}, &patching{ctx: t.Context(), patch: p, edits: new([]review.Edit)})
				if ok == c.whole {
					t.Fatalf("done by parts: %t", ok)
				}
				if !ok {
					return
				}
				if diff := cmp.Diff(outcome(wholeChanged, wholeObject, wholeErr), outcome(changed, patched, err)); diff != "" {
					t.Errorf("by way of the whole (-), by parts (+):\n%s", diff)
				}
				if diff := cmp.Diff(before, object); diff != "" {
					t.Errorf("the object was changed:\n%s", diff)
				}
			})
		}
	}
	t.Run("S5.4 an object that carries initializers", func(t *testing.T) {
		object := kinds["v1 ConfigMap"].DeepCopyObject().(*corev1.ConfigMap)
		initializers.Set(object, &initializers.Initializers{Pending: []initializers.Initializer{{Name: "a.example.com"}}})
		p, err := review.DecodePatch([]byte(`[{"op":"add","path":"/metadata/labels/x","value":"y"}]`))
		if err != nil {
			t.Fatal(err)
		}
		_, _, ok, err := (&Set{o: i}).patchedPart(&Form{kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), object: object}, &patching{ctx: t.Context(), patch: p, edits: new([]review.Edit)})
		if ok || err != nil {
			t.Errorf("done by parts: %t, %v", ok, err)
		}
	})
}

func cut(kind string) (apiVersion, name string) {
	var rest string
	if _, err := fmt.Sscanf(kind, "%s %s", &apiVersion, &rest); err != nil {
		panic(err)
	}
	return apiVersion, rest
}
