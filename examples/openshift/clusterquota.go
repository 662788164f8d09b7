package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

// clusterQuota has the used fields of a ClusterResourceQuota.
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

// newClusterQuota returns an initializer of pods. It fails a pod that exceeds a ClusterResourceQuota. It
// handles one pod at a time and counts all earlier pods, so that no quota is exceeded while one process runs.
// status.total then has the usage.
func newClusterQuota(config *rest.Config) (*initializer.Controller, error) {
	reading := rest.CopyConfig(config)
	// With the default rate limit of a client, pods would wait longer than the server's timeout for
	// initializers.
	reading.QPS = -1
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

// fits returns a *initializer.Failure if a pod exceeds a quota. The client must include uninitialized objects.
func fits(ctx context.Context, client dynamic.Interface, pod *unstructured.Unstructured) error {
	quotas, err := client.Resource(clusterQuotas).List(ctx, metav1.ListOptions{})
	if err != nil || len(quotas.Items) == 0 {
		return err
	}
	all, err := client.Resource(namespaces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	type charge struct {
		quota *unstructured.Unstructured
		hard  corev1.ResourceList
		total corev1.ResourceList
	}
	var charges []charge
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
		used, err := usedIn(ctx, client, selected)
		if err != nil {
			return err
		}
		if exceeded := quota.exceeded(used, more); len(exceeded) > 0 {
			return initializer.Fail(403, metav1.StatusReasonForbidden, "pod %q exceeds the cluster quota %s: %s",
				pod.GetName(), quota.Name, strings.Join(exceeded, "; "))
		}
		add(used, more)
		charges = append(charges, charge{&quotas.Items[i], quota.Spec.Quota.Hard, used})
	}
	// The pod fits into all quotas.
	for _, c := range charges {
		if err := report(ctx, client, c.quota, c.hard, c.total); err != nil {
			return err
		}
	}
	return nil
}

func add(to, more corev1.ResourceList) {
	for name, quantity := range more {
		sum := to[name]
		sum.Add(quantity)
		to[name] = sum
	}
}

// report writes the status of a quota: its limits and the usage. After a conflict with another change of the
// quota, the pod is checked again.
func report(ctx context.Context, client dynamic.Interface, quota *unstructured.Unstructured, hard, used corev1.ResourceList) error {
	total := map[string]any{"hard": map[string]any{}, "used": map[string]any{}}
	for name, limit := range hard {
		quantity := used[name]
		total["hard"].(map[string]any)[string(name)] = limit.String()
		total["used"].(map[string]any)[string(name)] = quantity.String()
	}
	status, _, _ := unstructured.NestedMap(quota.Object, "status")
	if status == nil {
		status = map[string]any{}
	}
	if equality.Semantic.DeepEqual(status["total"], any(total)) {
		return nil
	}
	status["total"] = total
	if err := unstructured.SetNestedMap(quota.Object, status, "status"); err != nil {
		return err
	}
	_, err := client.Resource(clusterQuotas).UpdateStatus(ctx, quota, metav1.UpdateOptions{})
	return err
}

// reportAll updates the status of all quotas periodically, since pods that end or are deleted release their
// usage.
func reportAll(ctx context.Context, config *rest.Config, every time.Duration) error {
	reading := rest.CopyConfig(config)
	reading.QPS = -1
	reading.Wrap(initializer.IncludeUninitialized)
	client, err := dynamic.NewForConfig(reading)
	if err != nil {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			// A failure is retried at the next interval.
			_ = reportOnce(ctx, client)
		}
	}
}

func reportOnce(ctx context.Context, client dynamic.Interface) error {
	quotas, err := client.Resource(clusterQuotas).List(ctx, metav1.ListOptions{})
	if err != nil || len(quotas.Items) == 0 {
		return err
	}
	all, err := client.Resource(namespaces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range quotas.Items {
		var quota clusterQuota
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(quotas.Items[i].Object, &quota); err != nil {
			errs = append(errs, err)
			continue
		}
		selected, err := quota.selected(all)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		used, err := usedIn(ctx, client, selected)
		if err == nil {
			err = report(ctx, client, &quotas.Items[i], quota.Spec.Quota.Hard, used)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// usedIn returns the sum of the usage of the pods in the namespaces.
func usedIn(ctx context.Context, client dynamic.Interface, names []string) (corev1.ResourceList, error) {
	used := corev1.ResourceList{}
	for _, namespace := range names {
		existing, err := client.Resource(pods).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range existing.Items {
			if !counts(&existing.Items[i]) {
				continue
			}
			one, err := usage(&existing.Items[i])
			if err != nil {
				return nil, err
			}
			add(used, one)
		}
	}
	return used, nil
}

// selected returns the namespaces that a quota selects.
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

// exceeded describes, for each exceeded resource, the amounts.
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

// counts reports whether a pod has passed this initializer and has not ended.
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

// usage returns the usage of a pod: pods, requests.cpu, requests.memory and so on.
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
