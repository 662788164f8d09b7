package aggregation

//lint:file-ignore SA1019 Services of old clusters have Endpoints and no EndpointSlices (S8.4).

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	availabilitymetrics "k8s.io/kube-aggregator/pkg/controllers/status/metrics"
	remotestatus "k8s.io/kube-aggregator/pkg/controllers/status/remote"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lateinformer"
)

// availability returns upstream's metrics, which all servers of a process share.
var availability = sync.OnceValue(func() *availabilitymetrics.Metrics {
	m := availabilitymetrics.New()
	if err := m.Register(legacyregistry.Register, legacyregistry.CustomRegister); err != nil {
		klog.ErrorS(err, "No metrics of APIServices are served")
	}
	return m
})

// keepLocal maintains the condition of a local APIService and its metric as upstream's controller
// does (S22.5), without a queue, workers and a handler of its own.
func (a *Aggregator) keepLocal(service *apiregistrationv1.APIService) error {
	next := service.DeepCopy()
	helper.SetAPIServiceCondition(next, helper.NewLocalAvailableAPIServiceCondition())
	availability().SetUnavailableGauge(next)
	if !a.up.Load() || equality.Semantic.DeepEqual(service.Status, next.Status) {
		return nil
	}
	_, err := a.client.ApiregistrationV1().APIServices().UpdateStatus(a.ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || a.ctx.Err() != nil {
		// The controller processes the APIService again, or this server need not keep its condition
		// any more.
		return nil
	}
	return err
}

// newRemote makes upstream's controller of the condition of remote APIServices (S22.6), and
// starts the informers that it needs.
func newRemote(ctx context.Context, a *Aggregator) (*remotestatus.AvailableConditionController, error) {
	core := a.options.Informers.Core().V1()
	services := located{ServiceInformer: core.Services(), options: &a.options, endpoints: core.Endpoints().Lister()}
	c, err := remotestatus.New(
		apiServices{a.informers.Apiregistration().V1().APIServices()},
		services, endpointSlices{a.options.Informers.Discovery().V1().EndpointSlices(), core.Endpoints()},
		a.client.ApiregistrationV1(), a.options.Dial, a.options.ClientCertificate, resolver{&a.options}, availability())
	if err != nil {
		return nil, err
	}
	a.options.Informers.Start(ctx.Done())
	return c, nil
}

// These are the informers of upstream's controllers, which may be made while the server ends.
type (
	apiServices struct {
		apiregistrationinformers.APIServiceInformer
	}
	endpointSlices struct {
		discoveryinformers.EndpointSliceInformer
		endpoints coreinformers.EndpointsInformer
	}
)

// Informer implements apiregistrationinformers.APIServiceInformer.
func (i apiServices) Informer() cache.SharedIndexInformer {
	return lateinformer.Informer(i.APIServiceInformer.Informer())
}

// Informer implements discoveryinformers.EndpointSliceInformer.
func (i endpointSlices) Informer() cache.SharedIndexInformer {
	return eitherInformer{lateinformer.Informer(i.EndpointSliceInformer.Informer()), lateinformer.Informer(i.endpoints.Informer())}
}

// eitherInformer is the informer of EndpointSlices. It also presents Endpoints, each as a slice of
// the same service: upstream's controller has to process a service again that has Endpoints only
// (S22.6).
type eitherInformer struct {
	cache.SharedIndexInformer
	endpoints cache.SharedIndexInformer
}

// AddEventHandler implements cache.SharedInformer.
func (i eitherInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	slices, err := i.SharedIndexInformer.AddEventHandler(h)
	if err != nil {
		return slices, err
	}
	endpoints, err := i.endpoints.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(e any, initial bool) { h.OnAdd(sliceOf(e), initial) },
		UpdateFunc: func(old, e any) { h.OnUpdate(sliceOf(old), sliceOf(e)) },
		DeleteFunc: func(e any) { h.OnDelete(sliceOf(e)) },
	})
	return eitherHandler{slices, endpoints}, err
}

// eitherHandler has synced when both handlers have.
type eitherHandler struct {
	cache.ResourceEventHandlerRegistration
	endpoints cache.ResourceEventHandlerRegistration
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (h eitherHandler) HasSynced() bool {
	return h.ResourceEventHandlerRegistration.HasSynced() && h.endpoints.HasSynced()
}

// sliceOf returns a slice that has only the service of Endpoints.
func sliceOf(endpoints any) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{}
	if key, err := cache.DeletionHandlingObjectToName(endpoints); err == nil {
		slice.Namespace, slice.Labels = key.Namespace, map[string]string{discoveryv1.LabelServiceName: key.Name}
	}
	return slice
}

// resolver finds services by Options, for upstream's controller.
type resolver struct{ *Options }

// ResolveEndpoint implements remotestatus.ServiceResolver.
func (r resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	host, err := r.resolve(context.Background(), namespace, name, port)
	if err != nil {
		return nil, fmt.Errorf("service %s/%s: %w", namespace, name, err)
	}
	return &url.URL{Scheme: "https", Host: host}, nil
}

// located presents services to upstream's controller, which requires ports and EndpointSlices of
// services of type ClusterIP only. A service that Options.Placed reports, or that has Endpoints and
// no EndpointSlices, is presented as a service of type ExternalName: the controller then only
// checks whether the server answers (S22.8).
type located struct {
	coreinformers.ServiceInformer
	options   *Options
	endpoints corelisters.EndpointsLister
}

// Informer implements coreinformers.ServiceInformer.
func (l located) Informer() cache.SharedIndexInformer {
	return lateinformer.Informer(l.ServiceInformer.Informer())
}

// Lister implements coreinformers.ServiceInformer.
func (l located) Lister() corelisters.ServiceLister {
	return corelisters.NewServiceLister(locatedIndexer{l.ServiceInformer.Informer().GetIndexer(), l})
}

type locatedIndexer struct {
	cache.Indexer
	located
}

// GetByKey implements cache.Store.
func (l locatedIndexer) GetByKey(key string) (any, bool, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, false, err
	}
	elsewhere := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName},
	}
	if l.options.Placed(namespace, name) {
		return elsewhere, true, nil
	}
	found, ok, err := l.Indexer.GetByKey(key)
	if !ok || found.(*corev1.Service).Spec.Type != corev1.ServiceTypeClusterIP {
		return found, ok, err
	}
	endpoints, err := l.endpoints.Endpoints(namespace).Get(name)
	if err == nil && written(endpoints) {
		return elsewhere, true, nil
	}
	return found, true, nil
}

// written reports whether there are Endpoints that no controller derived from a selector.
func written(e *corev1.Endpoints) bool {
	_, made := e.Labels["endpoints.kubernetes.io/managed-by"]
	return !made && len(e.Subsets) > 0
}
