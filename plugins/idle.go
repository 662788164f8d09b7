package plugins

import (
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"
)

// The functions of this file report whether a plugin reads no objects for a request. For such requests, the
// plugin returns before it reads: each function follows the first lines of a plugin.

// unbound reports whether a request is about a pod without a node.
func unbound(a apiadmission.Attributes) bool {
	pod, ok := a.GetObject().(*core.Pod)
	return ok && pod.Spec.NodeName == ""
}

func withoutRuntimeClass(a apiadmission.Attributes) bool {
	pod, ok := a.GetObject().(*core.Pod)
	return ok && pod.Spec.RuntimeClassName == nil
}

func withStorageClass(a apiadmission.Attributes) bool {
	claim, ok := a.GetObject().(*core.PersistentVolumeClaim)
	return ok && claim.Spec.StorageClassName != nil
}

func withIngressClass(a apiadmission.Attributes) bool {
	ingress, ok := a.GetObject().(*networking.Ingress)
	return ok && ingress.Spec.IngressClassName != nil
}

// ofNamespaces reports whether a request is about a namespace, which no quota counts.
func ofNamespaces(a apiadmission.Attributes) bool {
	return a.GetResource().Resource == "namespaces" && a.GetResource().Group == ""
}
