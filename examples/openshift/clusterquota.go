package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	resources "k8s.io/component-helpers/resource"

	"github.com/gatehouse-dev/gatehouse/initializer"
)

const quotaName = "cluster-quota.openshift.example.com"

var (
	pods          = corev1.SchemeGroupVersion.WithResource("pods")
	namespaces    = corev1.SchemeGroupVersion.WithResource("namespaces")
	clusterQuotas = schema.GroupVersionResource{Group: "quota.openshift.io", Version: "v1", Resource: "clusterresourcequotas"}
)

// clusterQuota is what this program reads of a ClusterResourceQuota.
type clusterQuota struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		// Selector selects namespaces. Both parts must match.
		Selector struct {
			Annotations map[string]string     `json:"annotations"`
			Labels      *metav1.LabelSelector `json:"labels"`
		} `json:"selector"`
		Quota struct {
			Hard corev1.ResourceList `json:"hard"`
		} `json:"quota"`
	} `json:"spec"`
}

// newClusterQuota returns an initializer of pods that fails those that do not fit into a
// ClusterResourceQuota. It works on one pod at a time and counts all that came before, so
// that no quota is exceeded while one process runs.
func newClusterQuota(config *rest.Config) (*initializer.Controller, error) {
	reading := rest.CopyConfig(config)
	reading.Wrap(initializer.IncludeUninitialized)
	client, err := dynamic.NewForConfig(reading)
	if err != nil {
		return nil, err
	}
	return initializer.New(initializer.Options{
		Name: quotaName, Config: config, Resources: []schema.GroupVersionResource{pods}, Workers: 1,
		Initialize: func(ctx context.Context, pod *unstructured.Unstructured) error { return fits(ctx, client, pod) },
	})
}

// fits returns a *initializer.Failure if a pod does not fit into a quota. The client must
// show uninitialized objects.
func fits(ctx context.Context, client dynamic.Interface, pod *unstructured.Unstructured) error {
	quotas, err := client.Resource(clusterQuotas).List(ctx, metav1.ListOptions{})
	if err != nil || len(quotas.Items) == 0 {
		return err
	}
	all, err := client.Resource(namespaces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	more, err := usage(pod)
	if err != nil {
		return err
	}
	for i := range quotas.Items {
		var quota clusterQuota
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(quotas.Items[i].Object, &quota); err != nil {
			return fmt.Errorf("cluster quota %s: %w", quotas.Items[i].GetName(), err)
		}
		selected, err := quota.selected(all)
		if err != nil {
			return fmt.Errorf("cluster quota %s: %w", quota.Name, err)
		}
		if !slices.Contains(selected, pod.GetNamespace()) {
			continue
		}
		used := corev1.ResourceList{}
		for _, namespace := range selected {
			existing, err := client.Resource(pods).Namespace(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range existing.Items {
				if !counts(&existing.Items[i]) {
					continue
				}
				one, err := usage(&existing.Items[i])
				if err != nil {
					return err
				}
				for name, quantity := range one {
					sum := used[name]
					sum.Add(quantity)
					used[name] = sum
				}
			}
		}
		if exceeded := quota.exceeded(used, more); len(exceeded) > 0 {
			return initializer.Fail(403, metav1.StatusReasonForbidden, "pod %q exceeds the cluster quota %s: %s",
				pod.GetName(), quota.Name, strings.Join(exceeded, "; "))
		}
	}
	return nil
}

// selected returns the names of the namespaces that a quota is about.
func (q *clusterQuota) selected(all *unstructured.UnstructuredList) ([]string, error) {
	selector, err := metav1.LabelSelectorAsSelector(q.Spec.Selector.Labels)
	if err != nil {
		return nil, err
	}
	if q.Spec.Selector.Labels == nil {
		selector = labels.Everything()
	}
	annotations := labels.SelectorFromSet(q.Spec.Selector.Annotations)
	var names []string
	for i := range all.Items {
		ns := &all.Items[i]
		if selector.Matches(labels.Set(ns.GetLabels())) && annotations.Matches(labels.Set(ns.GetAnnotations())) {
			names = append(names, ns.GetName())
		}
	}
	return names, nil
}

// exceeded says, for each resource that would be used too much, how much that is.
func (q *clusterQuota) exceeded(used, more corev1.ResourceList) []string {
	var found []string
	for name, hard := range q.Spec.Quota.Hard {
		before, requested := used[name], more[name]
		sum := before.DeepCopy()
		sum.Add(requested)
		if !requested.IsZero() && sum.Cmp(hard) > 0 {
			found = append(found, fmt.Sprintf("%s: %s of %s is used, the pod needs %s", name, before.String(), hard.String(), requested.String()))
		}
	}
	slices.Sort(found)
	return found
}

// counts tells whether a pod has passed this initializer and may still use something.
func counts(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	if phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed) {
		return false
	}
	pending, _, _ := unstructured.NestedSlice(pod.Object, "metadata", "initializers", "pending")
	return !slices.ContainsFunc(pending, func(entry any) bool {
		m, _ := entry.(map[string]any)
		return m["name"] == quotaName
	})
}

// usage returns what a pod counts for: pods, requests.cpu, requests.memory and so on.
func usage(obj *unstructured.Unstructured) (corev1.ResourceList, error) {
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &pod); err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	use := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)}
	for name, quantity := range resources.PodRequests(&pod, resources.PodResourcesOptions{}) {
		use[corev1.DefaultResourceRequestsPrefix+name] = quantity
	}
	return use, nil
}
