package offline

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
)

// strategies validate new objects: pods and claims, which plugins change before, and the
// workloads that they are made for.
var strategies = map[schema.GroupResource]rest.RESTCreateStrategy{
	{Resource: "pods"}:                       pod.Strategy,
	{Resource: "persistentvolumeclaims"}:     persistentvolumeclaim.Strategy,
	{Resource: "replicationcontrollers"}:     replicationcontroller.Strategy,
	{Group: "apps", Resource: "deployments"}: deployment.Strategy, {Group: "apps", Resource: "replicasets"}: replicaset.Strategy,
	{Group: "apps", Resource: "statefulsets"}: statefulset.Strategy, {Group: "apps", Resource: "daemonsets"}: daemonset.Strategy,
	{Group: "batch", Resource: "jobs"}: job.Strategy, {Group: "batch", Resource: "cronjobs"}: cronjob.Strategy,
}

// validates returns what validates the object of a request once plugins have changed it; nil when
// that is not known.
func validates(a apiadmission.Attributes) func(context.Context, runtime.Object) error {
	strategy := strategies[a.GetResource().GroupResource()]
	if strategy == nil || a.GetOperation() != apiadmission.Create || a.GetSubresource() != "" {
		return nil
	}
	if _, builtin := a.GetObject().(runtime.Unstructured); builtin {
		return nil
	}
	return func(ctx context.Context, object runtime.Object) error {
		ctx = request.WithNamespace(ctx, a.GetNamespace())
		r := a.GetResource()
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
			IsResourceRequest: true, Verb: "create", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Namespace: a.GetNamespace(),
		})
		prepared := object.DeepCopyObject()
		m, err := meta.Accessor(prepared)
		if err != nil {
			return err
		}
		m.SetUID(unknownUID)
		m.SetCreationTimestamp(metav1.Now())
		m.SetManagedFields(nil)
		return rest.BeforeCreate(strategy, ctx, prepared)
	}
}
