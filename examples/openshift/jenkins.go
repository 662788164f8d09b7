package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/initializer"
)

// jenkinsName is the name of the objects for Jenkins.
const jenkinsName = "jenkins"

// newJenkins returns an initializer of builds. The first build with a Jenkins pipeline in a namespace starts a
// Jenkins there.
func newJenkins(config *rest.Config, image string) (*initializer.Controller, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	group := schema.GroupVersion{Group: "build.openshift.io", Version: "v1"}
	return initializer.New(initializer.Options{
		Name:      "jenkins.openshift.example.com",
		Config:    config,
		Resources: []schema.GroupVersionResource{group.WithResource("builds"), group.WithResource("buildconfigs")},
		Initialize: func(ctx context.Context, build *unstructured.Unstructured) error {
			if _, pipeline, _ := unstructured.NestedMap(build.Object, "spec", "strategy", "jenkinsPipelineStrategy"); !pipeline {
				return nil
			}
			err := startJenkins(ctx, client, build.GetNamespace(), image)
			if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
				return initializer.Fail(403, metav1.StatusReasonForbidden, "starting a Jenkins for the build: %v", err)
			}
			return err
		},
	})
}

// startJenkins creates a Jenkins unless the namespace has the service. It creates the service last, so that an
// existing service means a complete Jenkins.
func startJenkins(ctx context.Context, client kubernetes.Interface, namespace, image string) error {
	if _, err := client.CoreV1().Services(namespace).Get(ctx, jenkinsName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	meta := metav1.ObjectMeta{Name: jenkinsName, Namespace: namespace, Labels: map[string]string{"app": jenkinsName}}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: jenkinsName, Image: image, Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}},
		},
	}}
	if _, err := client.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("deployment: %w", err)
	}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: meta.Labels, Ports: []corev1.ServicePort{{Port: 8080}}}}
	if _, err := client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("service: %w", err)
	}
	return nil
}
