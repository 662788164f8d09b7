package dev

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
)

// ownNode is the node of the pods of programs. There is no Node object: no controller of nodes acts on these pods.
const ownNode = "gatehouse-dev"

// ownIP is the address of a program in the downward API. The pod object has no address, so that its Service has no
// endpoints: the server calls the program at its port instead.
const ownIP = "127.0.0.1"

// hashLabel is the label by which a Deployment tells the pods of its ReplicaSets apart.
const hashLabel = "pod-template-hash"

// ownPod returns the pod of a program, and its owner chain from the workload down, without the owner references. Names
// depend only on the template, so that a session finds the objects of the session before.
func (t *target) ownPod() (pod *corev1.Pod, owners []*unstructured.Unstructured) {
	pod = &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: *t.template.ObjectMeta.DeepCopy(), Spec: *t.template.Spec.DeepCopy(),
	}
	pod.Namespace, pod.Spec.NodeName = t.namespace(), ownNode
	pod.Spec.ServiceAccountName = cmp.Or(pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	sum := fnv.New32a()
	// A template of the API marshals without an error.
	data, _ := json.Marshal(t.template)
	_, _ = sum.Write(data)
	hash := rand.SafeEncodeString(fmt.Sprintf("%010d", sum.Sum32()))
	name, workload := t.workload.GetName(), t.workload.DeepCopy()
	workload.SetNamespace(pod.Namespace)
	switch workload.GetKind() {
	case "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet":
		// Manifests of 2018 have versions that are no longer served, in which the selector had a default.
		workload.SetAPIVersion("apps/v1")
		if _, ok, _ := unstructured.NestedFieldNoCopy(workload.Object, "spec", "selector"); !ok {
			_ = unstructured.SetNestedStringMap(workload.Object, t.template.Labels, "spec", "selector", "matchLabels")
		}
	}
	switch workload.GetKind() {
	case "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController":
		_ = unstructured.SetNestedField(workload.Object, int64(1), "spec", "replicas")
	}
	switch workload.GetKind() {
	case "Pod":
		pod.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations}
		return pod, nil
	case "Deployment":
		set := replicaSet(workload, hash)
		owners = []*unstructured.Unstructured{workload, set}
		pod.Labels[hashLabel] = hash
		pod.Name = set.GetName() + "-" + hash[:5]
	case "StatefulSet":
		// The controller would replace a pod that it did not make itself.
		_ = unstructured.SetNestedMap(workload.Object, map[string]any{"type": "OnDelete"}, "spec", "updateStrategy")
		owners = []*unstructured.Unstructured{workload}
		pod.Name = name + "-0"
		pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, text(workload.Object, "spec", "serviceName")
		maps.Copy(pod.Labels, map[string]string{"statefulset.kubernetes.io/pod-name": pod.Name, "apps.kubernetes.io/pod-index": "0"})
	default:
		owners = []*unstructured.Unstructured{workload}
		pod.Name = name + "-" + hash[:5]
	}
	return pod, owners
}

// replicaSet returns the ReplicaSet of a Deployment, as the Deployment controller makes it.
func replicaSet(deployment *unstructured.Unstructured, hash string) *unstructured.Unstructured {
	spec, _, _ := unstructured.NestedMap(deployment.Object, "spec")
	selector, _ := spec["selector"].(map[string]any)
	if selector == nil {
		selector = map[string]any{}
	}
	template, _ := spec["template"].(map[string]any)
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"spec": map[string]any{"replicas": int64(1), "selector": selector, "template": template},
	}}
	set.SetName(deployment.GetName() + "-" + hash)
	set.SetNamespace(deployment.GetNamespace())
	labels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
	if labels == nil {
		labels = map[string]string{}
	}
	labels[hashLabel] = hash
	set.SetLabels(labels)
	set.SetAnnotations(map[string]string{"deployment.kubernetes.io/revision": "1", "deployment.kubernetes.io/desired-replicas": "1", "deployment.kubernetes.io/max-replicas": "2"})
	_ = unstructured.SetNestedField(set.Object, hash, "spec", "selector", "matchLabels", hashLabel)
	_ = unstructured.SetNestedField(set.Object, hash, "spec", "template", "metadata", "labels", hashLabel)
	return set
}

// ready returns the status of a pod whose containers run.
func ready(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	yes := true
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &yes, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}

// replicasReady is the status of a workload whose only pod is ready.
var replicasReady = map[string]any{"replicas": int64(1), "readyReplicas": int64(1), "availableReplicas": int64(1), "observedGeneration": int64(1)}

// createPods creates the pod of each program with its owners: the program may look for itself. They must be created before
// the registrations, as in a cluster, where the webhook does not serve yet.
func (s *session) createPods(ctx context.Context) error {
	for _, p := range s.programs {
		if p.pod == nil || p.created {
			continue
		}
		p.created = true
		if s.FakeNodes > 0 && p.workload.GetKind() == "DaemonSet" {
			s.sayOnce("Left out: %s, since its controller would make a pod on each of the fake nodes.", titleOf(p.workload))
			continue
		}
		stored, err := s.createPod(ctx, p.pod, p.owners)
		if err != nil {
			s.sayOnce("The pod of %s does not exist as an object: %v.", titleOf(p.workload), err)
			continue
		}
		p.pod.UID = stored.GetUID()
	}
	return nil
}

// createPod creates a pod and its owners. Objects of a session before stay. The pod precedes its owners, and each gets its
// owner last: a controller that finds an owner without its object makes another.
func (s *session) createPod(ctx context.Context, pod *corev1.Pod, owners []*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	var owned, stored *unstructured.Unstructured
	for _, u := range slices.Backward(append(owners, &unstructured.Unstructured{Object: content})) {
		var status any = replicasReady
		switch u.GetKind() {
		case "Deployment":
			deployed := maps.Clone(replicasReady)
			deployed["updatedReplicas"] = int64(1)
			status = deployed
		case "Pod":
			status = ready(pod, metav1.NewTime(time.Now()))
		case "DaemonSet":
			status = map[string]any{"currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 1, "numberReady": 1, "numberAvailable": 1}
		case "Job", "CronJob":
			status = nil
		}
		owner, err := s.put(ctx, u, status)
		if err == nil && owned != nil {
			yes := true
			err = s.own(ctx, owned, metav1.OwnerReference{
				APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes,
			})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", titleOf(u), err)
		}
		if owned = owner; stored == nil {
			stored = owner
		}
	}
	return stored, nil
}

// own gives an object its owner. A controller may have done it before.
func (s *session) own(ctx context.Context, u *unstructured.Unstructured, owner metav1.OwnerReference) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{owner}}})
	if err != nil {
		return err
	}
	q := stage.HTTPRequest{
		Method: http.MethodPatch, Path: stage.Path(s.stage.Kinds().Of(u.GroupVersionKind()), u.GetNamespace(), u.GetName()),
		ContentType: "application/merge-patch+json", Body: patch,
	}
	a, err := s.stage.Admin().Do(ctx, q)
	if err == nil {
		err = a.Err(q)
	}
	return err
}

// put creates an object with a status, or returns the stored one. A nil status is not written.
func (s *session) put(ctx context.Context, u *unstructured.Unstructured, status any) (*unstructured.Unstructured, error) {
	kind := s.stage.Kinds().Of(u.GroupVersionKind())
	path := stage.Path(kind, u.GetNamespace(), u.GetName())
	body, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	admin := s.stage.Admin()
	stored := &unstructured.Unstructured{}
	do := func(q stage.HTTPRequest) error {
		a, err := admin.Do(ctx, q)
		if err == nil {
			err = a.Err(q)
		}
		if err == nil {
			err = json.Unmarshal(a.Body, &stored.Object)
		}
		return err
	}
	a, err := admin.Do(ctx, stage.HTTPRequest{Method: http.MethodPost, Path: stage.Collection(kind, u.GetNamespace()), ContentType: stage.JSON, Body: body})
	switch {
	case err != nil:
		return nil, err
	case a.Code == http.StatusConflict:
		err = do(stage.HTTPRequest{Method: http.MethodGet, Path: path})
	case !a.OK():
		return nil, fmt.Errorf("%s", a.Status.Message)
	default:
		err = json.Unmarshal(a.Body, &stored.Object)
	}
	if err != nil || status == nil {
		return stored, err
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		err = do(stage.HTTPRequest{Method: http.MethodPatch, Path: path + "/status", ContentType: "application/merge-patch+json", Body: patch})
	}
	return stored, err
}

// tokenLife is the life of a token of a service account: longer than sessions.
const tokenLife = 30 * 24 * time.Hour

// token returns a token of the service account of a pod.
func (s *session) token(ctx context.Context, pod *corev1.Pod, audience string) ([]byte, error) {
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	seconds := int64(tokenLife / time.Second)
	q := &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec:     authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}
	if audience != "" {
		q.Spec.Audiences = []string{audience}
	}
	if pod.UID != "" {
		q.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	kind := s.stage.Kinds().Of(schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"})
	request := stage.HTTPRequest{Method: http.MethodPost, Path: stage.Path(kind, pod.Namespace, account) + "/token", ContentType: stage.JSON, Body: body}
	a, err := s.stage.Admin().Do(ctx, request)
	if err == nil {
		err = a.Err(request)
	}
	if err == nil {
		err = json.Unmarshal(a.Body, q)
	}
	return []byte(q.Status.Token), err
}
