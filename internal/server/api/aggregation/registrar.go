package aggregation

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
)

// registrar maintains the local APIServices: of built-in group versions at the start, of custom
// group versions at all times (S22.3, S22.4).
type registrar struct {
	builtin []*apiregistrationv1.APIService
	// priority is Options.Priority.
	priority func(schema.GroupVersion) Priority
	// controller is upstream's.
	controller interface {
		autoregister.AutoAPIServiceRegistration
		Run(workers int, stop <-chan struct{})
	}

	mu struct {
		sync.Mutex
		// custom are the group versions that the controller keeps.
		custom map[schema.GroupVersion]bool
	}
}

func newRegistrar(client clientset.Interface, services apiregistrationinformers.APIServiceInformer, o *Options) *registrar {
	r := &registrar{priority: o.Priority, controller: autoregister.NewAutoRegisterController(services, client.ApiregistrationV1())}
	for _, gv := range o.Builtin {
		if gv.Group == groupName {
			continue
		}
		service := r.local(gv)
		r.builtin = append(r.builtin, service)
		r.controller.AddAPIServiceToSyncOnStart(service)
	}
	return r
}

// local is the APIService of a group version of this server.
func (r *registrar) local(gv schema.GroupVersion) *apiregistrationv1.APIService {
	p := r.priority(gv)
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.Group, VersionPriority: p.Version,
		},
	}
}

// creators is how many APIServices are created at once.
const creators = 8

// create creates the missing APIServices of built-in group versions. The controller would create
// them later, but a server that is ready must have them. Existing APIServices are left to the
// controller, which compares them.
func (r *registrar) create(ctx context.Context, client clientset.Interface) error {
	services := client.ApiregistrationV1().APIServices()
	found, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("APIServices: %w", err)
	}
	there := map[string]bool{}
	for i := range found.Items {
		there[found.Items[i].Name] = true
	}
	var group errgroup.Group
	group.SetLimit(creators)
	for _, service := range r.builtin {
		if there[service.Name] {
			continue
		}
		group.Go(func() error {
			service = service.DeepCopy()
			service.Labels = map[string]string{autoregister.AutoRegisterManagedLabel: "onstart"}
			_, err := services.Create(ctx, service, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("APIService %s: %w", service.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (r *registrar) setCustom(versions []schema.GroupVersion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := make(map[schema.GroupVersion]bool, len(versions))
	for _, gv := range versions {
		now[gv] = true
		if !r.mu.custom[gv] {
			r.controller.AddAPIServiceToSync(r.local(gv))
		}
	}
	for gv := range r.mu.custom {
		if !now[gv] {
			r.controller.RemoveAPIServiceToSync(gv.Version + "." + gv.Group)
		}
	}
	r.mu.custom = now
}

// registrars is how many local APIServices are written at once. One is enough: create has made
// most of them at the start.
const registrars = 1

func (r *registrar) run(ctx context.Context) { r.controller.Run(registrars, ctx.Done()) }

func logger(ctx context.Context) klog.Logger {
	return klog.LoggerWithName(klog.FromContext(ctx), "aggregation")
}
