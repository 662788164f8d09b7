package election

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	clients "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/coordination"
)

// leases reads and writes Leases directly in their storage, without admission: a webhook for
// Leases that hangs must not decide which server runs the controllers.
type leases struct {
	// An elector needs no other methods than those below.
	clients.LeaseInterface
	storage   leaseStorage
	namespace string
}

type leaseStorage interface {
	rest.Getter
	rest.Creater
	rest.Updater
}

// Stored returns the Leases of a storage.
func Stored(storage rest.Storage) (clients.LeasesGetter, error) {
	s, ok := storage.(leaseStorage)
	if !ok {
		return nil, fmt.Errorf("a %T does not store leases", storage)
	}
	return leases{storage: s}, nil
}

// Leases implements clients.LeasesGetter.
func (l leases) Leases(namespace string) clients.LeaseInterface {
	l.namespace = namespace
	return l
}

// Get implements clients.LeaseInterface.
func (l leases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return external(l.storage.Get(l.at(ctx, "get", name), name, &o))
}

// Create implements clients.LeaseInterface.
func (l leases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	obj, err := internal(lease)
	if err != nil {
		return nil, err
	}
	return external(l.storage.Create(l.at(ctx, "create", lease.Name), obj, rest.ValidateAllObjectFunc, &o))
}

// Update implements clients.LeaseInterface.
func (l leases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	obj, err := internal(lease)
	if err != nil {
		return nil, err
	}
	updated, _, err := l.storage.Update(l.at(ctx, "update", lease.Name), lease.Name, rest.DefaultUpdatedObjectInfo(obj),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &o)
	return external(updated, err)
}

// at returns the context of a request for a Lease, as storages expect it.
func (l leases) at(ctx context.Context, verb, name string) context.Context {
	gv := coordinationv1.SchemeGroupVersion
	return genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(ctx, l.namespace), &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIPrefix: "apis", APIGroup: gv.Group, APIVersion: gv.Version,
		Namespace: l.namespace, Resource: "leases", Name: name,
	})
}

func internal(lease *coordinationv1.Lease) (*coordination.Lease, error) {
	obj := &coordination.Lease{}
	if err := legacyscheme.Scheme.Convert(lease, obj, nil); err != nil {
		return nil, fmt.Errorf("lease %s: %w", lease.Name, err)
	}
	return obj, nil
}

func external(obj runtime.Object, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	lease := &coordinationv1.Lease{}
	if err := legacyscheme.Scheme.Convert(obj, lease, nil); err != nil {
		return nil, fmt.Errorf("lease as it is stored: %w", err)
	}
	return lease, nil
}
