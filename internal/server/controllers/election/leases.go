package election

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/coordination"
)

// leases reads and writes Leases directly in their storage, without admission: a webhook for
// Leases that hangs must not decide which server runs the controllers.
type leases struct{ storage leaseStorage }

type leaseStorage interface {
	rest.Getter
	rest.Creater
	rest.Updater
}

// Stored returns the Leases of a storage.
func Stored(storage rest.Storage) (Leases, error) {
	s, ok := storage.(leaseStorage)
	if !ok {
		return nil, fmt.Errorf("a %T does not store leases", storage)
	}
	return &leases{s}, nil
}

// Get implements Leases.
func (l *leases) Get(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	return external(l.storage.Get(at(ctx, "get", namespace, name), name, &metav1.GetOptions{}))
}

// Create implements Leases.
func (l *leases) Create(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	obj, err := internal(lease)
	if err != nil {
		return nil, err
	}
	return external(l.storage.Create(at(ctx, "create", lease.Namespace, lease.Name), obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))
}

// Update implements Leases.
func (l *leases) Update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	obj, err := internal(lease)
	if err != nil {
		return nil, err
	}
	updated, _, err := l.storage.Update(at(ctx, "update", lease.Namespace, lease.Name), lease.Name, rest.DefaultUpdatedObjectInfo(obj),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return external(updated, err)
}

// at returns the context of a request for a Lease, as storages expect it.
func at(ctx context.Context, verb, namespace, name string) context.Context {
	gv := coordinationv1.SchemeGroupVersion
	return genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(ctx, namespace), &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIPrefix: "apis", APIGroup: gv.Group, APIVersion: gv.Version,
		Namespace: namespace, Resource: "leases", Name: name,
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
