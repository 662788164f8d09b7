package stores

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/service"
)

// ServiceAddress returns the HOST:PORT of a port of a service that runs outside of the cluster,
// and false for any other service.
type ServiceAddress func(namespace, name string, port int32) (string, bool)

// proxyToAddresses makes services/proxy use the addresses of services that run outside of the
// cluster.
func proxyToAddresses(groups []Group, address ServiceAddress, transport http.RoundTripper) {
	if address == nil {
		return
	}
	for v := range Versions(groups, "") {
		if proxy, ok := v.Storage["services/proxy"].(*service.ProxyREST); ok {
			proxy.Redirector = redirector{proxy.Redirector, v.Storage["services"].(rest.Getter), address, transport}
		}
	}
}

// slicesTimeout bounds reading the EndpointSlices of a service.
const slicesTimeout = 10 * time.Second

// endpointSlices reads the EndpointSlices of a service when a client requests the proxy of the
// service. A server without such requests does not watch EndpointSlices for them.
type endpointSlices struct{ client kubernetes.Interface }

// GetEndpointSlices implements proxy.EndpointSliceGetter.
func (e endpointSlices) GetEndpointSlices(namespace, service string) ([]*discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(context.Background(), slicesTimeout)
	defer cancel()
	list, err := e.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: service}.String(),
	})
	if err != nil {
		return nil, err
	}
	slices := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		slices[i] = &list.Items[i]
	}
	return slices, nil
}

// redirector finds the address of a service.
type redirector struct {
	rest.Redirector
	services  rest.Getter
	address   ServiceAddress
	transport http.RoundTripper
}

// ResourceLocation implements rest.Redirector. The service must exist and have the port, as for
// services with endpoints.
func (r redirector) ResourceLocation(ctx context.Context, id string) (*url.URL, http.RoundTripper, error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return r.Redirector.ResourceLocation(ctx, id)
	}
	obj, err := r.services.Get(ctx, name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// The error that upstream returns for a missing service depends on the port.
		return r.Redirector.ResourceLocation(ctx, id)
	}
	if err != nil {
		return nil, nil, err
	}
	svc, ok := obj.(*api.Service)
	if !ok {
		return nil, nil, apierrors.NewInternalError(fmt.Errorf("service %s is a %T", name, obj))
	}
	for _, p := range svc.Spec.Ports {
		if p.Name != port && strconv.Itoa(int(p.Port)) != port {
			continue
		}
		if host, ok := r.address(request.NamespaceValue(ctx), name, p.Port); ok {
			return &url.URL{Scheme: scheme, Host: host}, r.transport, nil
		}
	}
	return r.Redirector.ResourceLocation(ctx, id)
}
