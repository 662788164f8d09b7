package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	webv1 "github.com/gatehouse-dev/gatehouse/examples/operator/api/v1"
)

// reconciler runs a Deployment for each Website.
type reconciler struct {
	client.Client
}

func (r *reconciler) setup(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).For(&webv1.Website{}).Owns(&appsv1.Deployment{}).Complete(r)
}

// Reconcile creates or updates the Deployment of the Website.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	site := &webv1.Website{}
	if err := r.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"website": site.Name}
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Replicas = site.Spec.Replicas
		deployment.Spec.Template.Labels = labels
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: site.Spec.Image}}
		return controllerutil.SetControllerReference(site, deployment, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if site.Status.Deployment == deployment.Name {
		return ctrl.Result{}, nil
	}
	site.Status.Deployment = deployment.Name
	return ctrl.Result{}, r.Status().Update(ctx, site)
}
