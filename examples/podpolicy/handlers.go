package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// InjectAnnotation with the value "false" disables the sidecar of a pod.
	InjectAnnotation = "podpolicy.gatehouse.dev/inject"
	// InjectedLabel marks the pods with a sidecar.
	InjectedLabel = "podpolicy.gatehouse.dev/injected"
	// SidecarName is the name of the added container.
	SidecarName = "podpolicy-sidecar"
)

// Injector adds a label and a sidecar container to pods. It keeps existing labels and containers, so that
// calling it twice has the same result as calling it once.
type Injector struct {
	// Image is the image of the sidecar.
	Image string
}

// Default changes pod. It never returns an error.
func (i Injector) Default(_ context.Context, pod *corev1.Pod) error {
	if pod.Annotations[InjectAnnotation] == "false" {
		return nil
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[InjectedLabel] = "true"
	if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == SidecarName }) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: SidecarName, Image: i.Image})
	}
	return nil
}

// ImagePolicy rejects pods with images from other registries.
type ImagePolicy struct {
	// Registry is a host, or a host and a path, that every image must begin with, such as registry.example.com
	// or registry.example.com/team.
	Registry string
}

// ValidateCreate rejects a pod with an image from outside the registry. The denial (403) names each such
// container. It has no causes: kubectl would print only the causes, without the name of the webhook.
func (p ImagePolicy) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	return nil, p.check(pod, nil)
}

// ValidateUpdate checks new images only. Images that the pod already had are allowed, so that pods older than
// the policy can still be labelled, annotated and finalized.
func (p ImagePolicy) ValidateUpdate(_ context.Context, old, pod *corev1.Pod) (admission.Warnings, error) {
	had := map[string]bool{}
	eachImage(old, func(_ *field.Path, image string) { had[image] = true })
	return nil, p.check(pod, had)
}

// ValidateDelete allows every deletion.
func (p ImagePolicy) ValidateDelete(context.Context, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

func (p ImagePolicy) check(pod *corev1.Pod, had map[string]bool) error {
	var errs field.ErrorList
	eachImage(pod, func(path *field.Path, image string) {
		if had[image] || strings.HasPrefix(image, p.Registry+"/") {
			return
		}
		errs = append(errs, field.Invalid(path, image,
			fmt.Sprintf("images must come from %s: push it there and use %s/NAME:TAG", p.Registry, p.Registry)))
	})
	if len(errs) == 0 {
		return nil
	}
	return errs.ToAggregate()
}

// eachImage calls f with every image of a pod and the path of its field.
func eachImage(pod *corev1.Pod, f func(*field.Path, string)) {
	spec := field.NewPath("spec")
	for i, c := range pod.Spec.InitContainers {
		f(spec.Child("initContainers").Index(i).Child("image"), c.Image)
	}
	for i, c := range pod.Spec.Containers {
		f(spec.Child("containers").Index(i).Child("image"), c.Image)
	}
	for i, c := range pod.Spec.EphemeralContainers {
		f(spec.Child("ephemeralContainers").Index(i).Child("image"), c.Image)
	}
}
