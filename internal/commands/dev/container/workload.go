package container

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// templates are the fields with the pod template, by kind.
var templates = map[string][]string{
	"Deployment": {"spec", "template"}, "StatefulSet": {"spec", "template"}, "DaemonSet": {"spec", "template"}, "ReplicaSet": {"spec", "template"},
	"ReplicationController": {"spec", "template"}, "Job": {"spec", "template"}, "CronJob": {"spec", "jobTemplate", "spec", "template"}, "Pod": {},
}

// MakesPods reports whether objects of a kind are pods or make pods.
func MakesPods(kind string) bool { return templates[kind] != nil }

// Template returns the pod template of a workload; nil for an object of another kind.
func Template(u *unstructured.Unstructured) (*corev1.PodTemplateSpec, error) {
	path, ok := templates[u.GetKind()]
	if !ok {
		return nil, nil
	}
	content, _, err := unstructured.NestedMap(u.Object, path...)
	t := &corev1.PodTemplateSpec{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, t)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return t, nil
}

// defaultContainer is the annotation of pods that names the container of kubectl logs and kubectl exec.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// Behind returns the container of a pod that listens on a port of a Service. If no container declares the port, it is
// the container of the annotation kubectl.kubernetes.io/default-container, or else the first one; nil for a pod without
// containers.
func Behind(t *corev1.PodTemplateSpec, port intstr.IntOrString) *corev1.Container {
	containers := t.Spec.Containers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			if port.Type == intstr.String {
				return p.Name == port.StrVal
			}
			return p.ContainerPort == port.IntVal
		})
	})
	if at < 0 {
		at = slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == t.Annotations[defaultContainer] })
	}
	switch {
	case at >= 0:
		return &containers[at]
	case len(containers) > 0:
		return &containers[0]
	}
	return nil
}
