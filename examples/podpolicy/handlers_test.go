package main

import (
	"encoding/json"
	"net/http"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func pod(labels, annotations map[string]string, images ...string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: labels, Annotations: annotations},
	}
	for _, image := range images {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "c" + image[:1], Image: image})
	}
	return p
}

func raw(t *testing.T, p *corev1.Pod) runtime.RawExtension {
	t.Helper()
	if p == nil {
		return runtime.RawExtension{}
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: data}
}

func TestInjector(t *testing.T) {
	hook := admission.WithDefaulter(scheme.Scheme, Injector{Image: "registry.example.com/sidecar:1.0"})
	injected := pod(map[string]string{InjectedLabel: "true"}, nil, "registry.example.com/web:1")
	injected.Spec.Containers = append(injected.Spec.Containers,
		corev1.Container{Name: SidecarName, Image: "registry.example.com/sidecar:1.0"})
	optedOut := pod(nil, map[string]string{InjectAnnotation: "false"}, "registry.example.com/web:1")

	for _, test := range []struct {
		name       string
		send, want *corev1.Pod
	}{
		{"a pod gets the label and the sidecar", pod(nil, nil, "registry.example.com/web:1"), injected},
		{"a pod that has both stays as it is", injected, injected},
		{"a pod that opts out stays as it is", optedOut, optedOut},
	} {
		t.Run(test.name, func(t *testing.T) {
			sent := raw(t, test.send)
			response := hook.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Object: sent,
			}})
			if !response.Allowed {
				t.Fatalf("not allowed: %v", response.Result)
			}
			operations, err := json.Marshal(response.Patches)
			if err != nil {
				t.Fatal(err)
			}
			got := sent.Raw
			if len(response.Patches) > 0 {
				patch, err := jsonpatch.DecodePatch(operations)
				if err != nil {
					t.Fatal(err)
				}
				if got, err = patch.Apply(sent.Raw); err != nil {
					t.Fatal(err)
				}
			}
			var result corev1.Pod
			if err := json.Unmarshal(got, &result); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, &result); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImagePolicy(t *testing.T) {
	hook := admission.WithValidator(scheme.Scheme, ImagePolicy{Registry: "registry.example.com"})
	const advice = ": images must come from registry.example.com: push it there and use registry.example.com/NAME:TAG"
	twoForeign := pod(nil, nil, "nginx", "registry.example.com/web:1")
	twoForeign.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "docker.io/busybox"}}
	debugged := pod(nil, nil, "registry.example.com/web:1")
	debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "alpine"},
	}}

	for _, test := range []struct {
		name      string
		operation admissionv1.Operation
		old, send *corev1.Pod
		want      string
	}{
		{"an allowed image", admissionv1.Create, nil, pod(nil, nil, "registry.example.com/web:1"), ""},
		{"every foreign image is named", admissionv1.Create, nil, twoForeign,
			`[spec.initContainers[0].image: Invalid value: "docker.io/busybox"` + advice +
				`, spec.containers[0].image: Invalid value: "nginx"` + advice + `]`},
		{"a registry whose name merely begins alike", admissionv1.Create, nil, pod(nil, nil, "registry.example.com.evil.io/web"),
			`spec.containers[0].image: Invalid value: "registry.example.com.evil.io/web"` + advice},
		{"an update that keeps an old foreign image", admissionv1.Update,
			pod(nil, nil, "nginx"), pod(map[string]string{"a": "b"}, nil, "nginx"), ""},
		{"an update that brings a foreign image", admissionv1.Update,
			pod(nil, nil, "nginx"), pod(nil, nil, "httpd"),
			`spec.containers[0].image: Invalid value: "httpd"` + advice},
		{"an ephemeral container with a foreign image", admissionv1.Update,
			pod(nil, nil, "registry.example.com/web:1"), debugged,
			`spec.ephemeralContainers[0].image: Invalid value: "alpine"` + advice},
		{"deletion", admissionv1.Delete, pod(nil, nil, "nginx"), nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			response := hook.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: test.operation, Object: raw(t, test.send), OldObject: raw(t, test.old),
			}})
			if response.Allowed != (test.want == "") {
				t.Fatalf("allowed = %t: %v", response.Allowed, response.Result)
			}
			if test.want == "" {
				return
			}
			if diff := cmp.Diff(test.want, response.Result.Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if response.Result.Code != http.StatusForbidden {
				t.Errorf("code = %d, want 403", response.Result.Code)
			}
		})
	}
}
