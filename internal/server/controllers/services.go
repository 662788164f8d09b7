package controllers

import (
	"context"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/scale"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/endpointslicemirroring"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"
)

// The workers and limits of the service controllers, as in a kube-controller-manager.
const (
	serviceWorkers = 5
	// perSlice bounds the endpoints in a slice, and perSubset the endpoints in the slices of a
	// subset of Endpoints.
	perSlice, perSubset = 100, 1000
)

// endpoints maintains the Endpoints of services with a selector.
func endpoints(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	core := t.informers.Core().V1()
	c := endpoint.NewEndpointController(ctx, core.Pods(), core.Services(), t.all.Core().V1().Endpoints(), client, 0)
	return func(ctx context.Context) { c.Run(ctx, serviceWorkers) }, nil
}

// endpointSlices maintains the EndpointSlices of services with a selector.
func endpointSlices(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	core := t.informers.Core().V1()
	c := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), t.all.Discovery().V1().EndpointSlices(), perSlice, client, 0)
	return func(ctx context.Context) { c.Run(ctx, serviceWorkers) }, nil
}

// mirrorEndpoints maintains EndpointSlices for Endpoints that users or other programs made.
func mirrorEndpoints(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	c := endpointslicemirroring.NewController(ctx, t.all.Core().V1().Endpoints(), t.all.Discovery().V1().EndpointSlices(), t.informers.Core().V1().Services(), perSubset, client, 0)
	return func(ctx context.Context) { c.Run(ctx, serviceWorkers) }, nil
}

// serviceRanges removes the finalizer of a deleted ServiceCIDR when none of its addresses is in
// use.
func serviceRanges(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	network := t.informers.Networking().V1()
	c := servicecidrs.NewController(ctx, network.ServiceCIDRs(), network.IPAddresses(), client)
	return func(ctx context.Context) { c.Run(ctx, serviceWorkers) }, nil
}

// disruptionBudgets maintains the status of PodDisruptionBudgets.
func disruptionBudgets(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	as := t.config("disruption-controller")
	as.ContentType, as.AcceptContentTypes = "", ""
	scales, err := scale.NewForConfig(as, t.mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, err
	}
	core, apps := t.informers.Core().V1(), t.informers.Apps().V1()
	c := disruption.NewDisruptionController(ctx, core.Pods(), t.informers.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(),
		apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, t.mapper, scales, client.Discovery())
	return func(ctx context.Context) { c.Run(ctx, 1) }, nil
}
