package webhookservices

//lint:file-ignore SA1019 Services of old clusters have Endpoints and no EndpointSlices (S8.4).

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/admission/call"
)

// Resolver returns a resolver of the endpoints of webhooks behind Services (S8.4). The resolver
// watches the cluster from its first call until stopped is closed: a server whose webhooks all
// have URLs watches no services.
func Resolver(informers informers.SharedInformerFactory, stopped <-chan struct{}) call.Resolver {
	core, discovery := informers.Core().V1(), informers.Discovery().V1()
	resolver := call.ServiceResolver{
		Service: func(namespace, name string) (*corev1.Service, error) {
			return core.Services().Lister().Services(namespace).Get(name)
		},
		EndpointSlices: func(namespace, service string) ([]*discoveryv1.EndpointSlice, error) {
			return discovery.EndpointSlices().Lister().EndpointSlices(namespace).List(
				labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}))
		},
		Endpoints: func(namespace, name string) (*corev1.Endpoints, error) {
			return core.Endpoints().Lister().Endpoints(namespace).Get(name)
		},
	}
	var watching atomic.Bool
	return call.ResolverFunc(func(ctx context.Context, namespace, name string, port int32) ([]string, error) {
		if !watching.Load() {
			synced := []cache.InformerSynced{
				core.Services().Informer().HasSynced,
				core.Endpoints().Informer().HasSynced,
				discovery.EndpointSlices().Informer().HasSynced,
			}
			informers.Start(stopped)
			if !cache.WaitForCacheSync(ctx.Done(), synced...) {
				return nil, fmt.Errorf("reading services and their endpoints: %w", context.Cause(ctx))
			}
			watching.Store(true)
		}
		return resolver.Resolve(ctx, namespace, name, port)
	})
}
