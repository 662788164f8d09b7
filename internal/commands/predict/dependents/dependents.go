package dependents

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/daemon/util"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// Object is a typed or untyped object whose kind is set.
type Object interface {
	runtime.Object
	metav1.Object
}

// Dependent is an object that a controller creates for a workload.
type Dependent struct {
	// Object has version v1 of its group. It shares nothing with other objects.
	Object Object
	// By is the controller's user.
	By user.Info
	// Of names the object for which the controller creates it.
	Of string
	// Template is the path of its template in the workload.
	Template []string
}

// unknownUID is the UID given to an object that does not exist.
const unknownUID types.UID = "00000000-0000-0000-0000-000000000000"

// controllerNamed returns the service account of a controller of kube-controller-manager.
func controllerNamed(name string) user.Info {
	return &user.DefaultInfo{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated},
	}
}

// Of returns the objects that controllers create for a workload, in order: a ReplicaSet for a Deployment, a Job
// for a CronJob, the claims of its first pod for a StatefulSet, and a pod for each of them. Other kinds have none. The
// objects equal the objects created by kube-controller-manager, except for unpredictable values: UIDs, the random ends
// of names, nodes, and the revision of a StatefulSet.
func Of(workload *unstructured.Unstructured) ([]Dependent, error) {
	kind := workload.GroupVersionKind()
	if !served(kind) {
		return nil, nil
	}
	data, err := workload.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return OfEncoded(kind, data)
}

// OfEncoded is Of for a workload in JSON. Content of another kind has no objects.
func OfEncoded(kind schema.GroupVersionKind, data []byte) ([]Dependent, error) {
	if !served(kind) {
		return nil, nil
	}
	workload, found, err := catalog.Codecs.UniversalDecoder(kind.GroupVersion()).Decode(data, nil, nil)
	switch {
	case len(data) == 0 || found != nil && *found != kind:
		return nil, nil
	case err != nil:
		return nil, err
	}
	m := &maker{}
	m.of(workload, "spec")
	return m.made, m.err
}

// served reports whether controllers create objects for a kind, which servers have in version v1.
func served(kind schema.GroupVersionKind) bool {
	return IsWorkload(kind.GroupKind()) && kind.Version == "v1"
}

// IsWorkload reports whether controllers create other objects for objects of a kind.
func IsWorkload(kind schema.GroupKind) bool { return makers[kind] != "" }

// makers maps the kinds of workloads to the names of their controllers.
var makers = map[schema.GroupKind]string{
	{Group: "apps", Kind: "Deployment"}: "deployment-controller", {Group: "apps", Kind: "ReplicaSet"}: "replicaset-controller",
	{Group: "apps", Kind: "StatefulSet"}: "statefulset-controller", {Group: "apps", Kind: "DaemonSet"}: "daemon-set-controller",
	{Group: "batch", Kind: "Job"}: "job-controller", {Group: "batch", Kind: "CronJob"}: "cronjob-controller",
	{Kind: "ReplicationController"}: "replication-controller",
}

// maker collects the objects that controllers create.
type maker struct {
	made []Dependent
	err  error
}

// of adds the objects that controllers create for an object, whose own template is below a path of the workload.
func (m *maker) of(object runtime.Object, at ...string) {
	template := append(at[:len(at):len(at)], "template")
	switch w := object.(type) {
	case *appsv1.Deployment:
		identify(w)
		set := replicaSet(w)
		m.add(w, "Deployment", set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), template)
		m.of(new(*set), at...)
	case *appsv1.ReplicaSet:
		identify(w)
		m.pod(w, "ReplicaSet", &w.Spec.Template, template, nil)
	case *corev1.ReplicationController:
		identify(w)
		if w.Spec.Template != nil {
			m.pod(w, "ReplicationController", w.Spec.Template, template, nil)
		}
	case *appsv1.StatefulSet:
		identify(w)
		for _, claim := range claims(w) {
			m.add(w, "StatefulSet", &claim, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), append(at[:len(at):len(at)], "volumeClaimTemplates"))
		}
		m.pod(w, "StatefulSet", &w.Spec.Template, template, func(pod *corev1.Pod) { inSet(w, pod) })
	case *appsv1.DaemonSet:
		identify(w)
		m.pod(w, "DaemonSet", &w.Spec.Template, template, func(pod *corev1.Pod) { onNode(w, pod) })
	case *batchv1.Job:
		identify(w)
		m.pod(w, "Job", &w.Spec.Template, template, func(pod *corev1.Pod) { ofJob(w, pod) })
	case *batchv1.CronJob:
		identify(w)
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: w.Name + "-29000000", Namespace: w.Namespace, Labels: maps.Clone(w.Spec.JobTemplate.Labels), Annotations: maps.Clone(w.Spec.JobTemplate.Annotations),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
			},
			Spec: *w.Spec.JobTemplate.Spec.DeepCopy(),
		}
		m.add(w, "CronJob", job, batchv1.SchemeGroupVersion.WithKind("Job"), append(at[:len(at):len(at)], "jobTemplate"))
		m.of(new(*job), append(at, "jobTemplate", "spec")...)
	}
}

// identify gives an object the UID and the name that the server would give it.
func identify(o metav1.Object) {
	o.SetUID(cmp.Or(o.GetUID(), unknownUID))
	if o.GetName() == "" {
		o.SetName(o.GetGenerateName() + "b2c4d")
	}
}

// pod adds the pod of a template, as the controller of its owner completes it.
func (m *maker) pod(owner metav1.Object, kind string, template *corev1.PodTemplateSpec, at []string, complete func(*corev1.Pod)) {
	gvk := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
	switch kind {
	case "Job":
		gvk.Group = "batch"
	case "ReplicationController":
		gvk.Group = ""
	}
	pod, err := controller.GetPodFromTemplate(template, owner.(runtime.Object), metav1.NewControllerRef(owner, gvk))
	if err != nil {
		m.err = err
		return
	}
	pod.Namespace = owner.GetNamespace()
	if complete != nil {
		complete(pod)
	}
	m.add(owner, kind, pod, corev1.SchemeGroupVersion.WithKind("Pod"), at)
}

// add adds an object that the controller of a kind creates for its owner.
func (m *maker) add(owner metav1.Object, kind string, object Object, of schema.GroupVersionKind, at []string) {
	object.GetObjectKind().SetGroupVersionKind(of)
	name := ""
	for group, controller := range makers {
		if group.Kind == kind {
			name = controller
		}
	}
	m.made = append(m.made, Dependent{Object: object, By: controllerNamed(name), Of: fmt.Sprintf("%s %s", kind, owner.GetName()), Template: at})
}

// Unstructured returns a copy of the object as a controller sends it.
func (d *Dependent) Unstructured() (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d.Object)
	if err != nil {
		return nil, err
	}
	if _, answered := d.Object.(*unstructured.Unstructured); !answered {
		delete(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// replicaSet returns the ReplicaSet of a Deployment.
func replicaSet(d *appsv1.Deployment) *appsv1.ReplicaSet {
	template := *d.Spec.Template.DeepCopy()
	hash := controller.ComputeHash(&template, d.Status.CollisionCount)
	template.Labels = withLabel(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	selector := d.Spec.Selector.DeepCopy()
	if selector != nil {
		selector.MatchLabels = withLabel(selector.MatchLabels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + hash, Namespace: d.Namespace, Labels: maps.Clone(template.Labels), Annotations: ofDeployment(d),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: template},
	}
}

// ofDeployment returns the annotations of the first ReplicaSet of a Deployment.
func ofDeployment(d *appsv1.Deployment) map[string]string {
	annotations := maps.Clone(d.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, name := range []string{corev1.LastAppliedConfigAnnotation, "deprecated.deployment.rollback.to"} {
		delete(annotations, name)
	}
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	annotations["deployment.kubernetes.io/revision"] = "1"
	annotations["deployment.kubernetes.io/desired-replicas"] = strconv.Itoa(int(replicas))
	annotations["deployment.kubernetes.io/max-replicas"] = strconv.Itoa(int(replicas) + 1)
	return annotations
}

func withLabel(labels map[string]string, name, value string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[name] = value
	return labels
}

// ordinal returns the ordinal of the first pod of a StatefulSet.
func ordinal(s *appsv1.StatefulSet) int {
	if s.Spec.Ordinals != nil {
		return int(s.Spec.Ordinals.Start)
	}
	return 0
}

// claims returns the claims of the first pod of a StatefulSet.
func claims(s *appsv1.StatefulSet) []corev1.PersistentVolumeClaim {
	list := make([]corev1.PersistentVolumeClaim, len(s.Spec.VolumeClaimTemplates))
	for i := range list {
		claim := s.Spec.VolumeClaimTemplates[i].DeepCopy()
		claim.Name = fmt.Sprintf("%s-%s-%d", claim.Name, s.Name, ordinal(s))
		claim.Namespace = s.Namespace
		claim.Labels = maps.Clone(claim.Labels)
		if s.Spec.Selector != nil {
			if claim.Labels == nil {
				claim.Labels = map[string]string{}
			}
			maps.Copy(claim.Labels, s.Spec.Selector.MatchLabels)
		}
		list[i] = *claim
	}
	return list
}

// inSet completes the first pod of a StatefulSet.
func inSet(s *appsv1.StatefulSet, pod *corev1.Pod) {
	at := ordinal(s)
	pod.Name = fmt.Sprintf("%s-%d", s.Name, at)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(at)
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, s.Spec.ServiceName
	mounted := map[string]bool{}
	var volumes []corev1.Volume
	for i := range s.Spec.VolumeClaimTemplates {
		name := s.Spec.VolumeClaimTemplates[i].Name
		mounted[name] = true
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("%s-%s-%d", name, s.Name, at)},
		}})
	}
	for i := range pod.Spec.Volumes {
		if !mounted[pod.Spec.Volumes[i].Name] {
			volumes = append(volumes, pod.Spec.Volumes[i])
		}
	}
	pod.Spec.Volumes = volumes
}

// anyNode is the assumed node of a pod of a DaemonSet.
const anyNode = "node"

// onNode completes a pod of a DaemonSet.
func onNode(d *appsv1.DaemonSet, pod *corev1.Pod) {
	util.AddOrUpdateDaemonPodTolerations(&pod.Spec)
	pod.Spec.Affinity = util.ReplaceDaemonSetPodNodeNameNodeAffinity(pod.Spec.Affinity, anyNode)
	pod.Labels = withLabel(pod.Labels, appsv1.ControllerRevisionHashLabelKey, controller.ComputeHash(&d.Spec.Template, d.Status.CollisionCount))
	if generation := d.Annotations[appsv1.DeprecatedTemplateGeneration]; generation != "" && generation != "0" {
		pod.Labels["pod-template-generation"] = generation
	} else {
		// The server gives this generation to a new DaemonSet.
		pod.Labels["pod-template-generation"] = "1"
	}
}

// ofJob completes a pod of a Job.
func ofJob(j *batchv1.Job, pod *corev1.Pod) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	for _, prefix := range []string{"", "batch.kubernetes.io/"} {
		pod.Labels[prefix+"controller-uid"] = string(j.UID)
		pod.Labels[prefix+"job-name"] = j.Name
	}
	pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	if j.Spec.CompletionMode == nil || *j.Spec.CompletionMode != batchv1.IndexedCompletion {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[batchv1.JobCompletionIndexAnnotation] = "0"
	pod.Labels[batchv1.JobCompletionIndexAnnotation] = "0"
	pod.Spec.Hostname, pod.GenerateName = j.Name+"-0", j.Name+"-0-"
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].Env = append(containers[i].Env, corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"},
			}})
		}
	}
}
