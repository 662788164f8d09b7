package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"

	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
)

// sampleAddress is used in place of the address that a server would give a service.
const sampleAddress = "10.96.0.10"

// Prepare runs a registry's strategy on the object of a request between the passes of admission: it
// drops fields that the request must not set, and sets dependent fields. The error is the reason to
// refuse the object.
type Prepare func(context.Context, runtime.Object) error

// errAsked ends a request to a registry where the registry calls validation.
var errAsked = errors.New("the registry asks whether it may store the object")

// Prepares returns the Prepare of a storage for the object of a request. It runs the registry's own code up to the
// point where the registry calls validation: nothing is stored, and no review is answered. The context has the user,
// the namespace and the RequestInfo of the request.
func Prepares(storage rest.Storage, a admission.Attributes) Prepare {
	if a.GetObject() == nil {
		return nil
	}
	dry := []string{metav1.DryRunAll}
	creater, creates := storage.(rest.Creater)
	named, createsNamed := storage.(rest.NamedCreater)
	createsNamed = createsNamed && !Binds(a.GetResource().GroupResource(), a.GetSubresource())
	updater, updates := storage.(rest.Updater)
	return func(ctx context.Context, object runtime.Object) error {
		asked := func(_ context.Context, made runtime.Object) error {
			if to, from := reflect.ValueOf(object), reflect.ValueOf(made); to.Type() == from.Type() {
				to.Elem().Set(from.Elem())
			}
			return errAsked
		}
		err := errAsked
		switch {
		case a.GetOperation() == admission.Create && creates:
			_, err = creater.Create(ctx, object, asked, &metav1.CreateOptions{DryRun: dry})
		case a.GetOperation() == admission.Create && createsNamed:
			_, err = named.Create(ctx, a.GetName(), object, asked, &metav1.CreateOptions{DryRun: dry})
		case a.GetOperation() == admission.Update && updates:
			_, _, err = updater.Update(ctx, a.GetName(), rest.DefaultUpdatedObjectInfo(object, current), asked,
				func(ctx context.Context, made, _ runtime.Object) error { return asked(ctx, made) }, false, &metav1.UpdateOptions{DryRun: dry})
		}
		if errors.Is(err, errAsked) {
			return nil
		}
		return err
	}
}

// current gives an object without a resource version, such as an object from a file, the stored resource
// version.
func current(_ context.Context, object, stored runtime.Object) (runtime.Object, error) {
	to, err := meta.Accessor(object)
	if err != nil || to.GetResourceVersion() != "" {
		return object, err
	}
	from, err := meta.Accessor(stored)
	if err == nil {
		to.SetResourceVersion(from.GetResourceVersion())
	}
	return object, err
}

// Strategies are the strategies of a registry; nil for a registry without creates, or updates.
type Strategies struct {
	Create rest.RESTCreateStrategy
	Update rest.RESTUpdateStrategy
}

// Registry returns the registry for a request. It reads stored objects by the Reader of a context.
func (s Strategies) Registry(a admission.Attributes) rest.Storage {
	if s.Create == nil && a.GetOperation() == admission.Create {
		return nil
	}
	resource := a.GetResource().GroupResource()
	return &genericregistry.Store{
		NewFunc: func() runtime.Object {
			return reflect.New(reflect.TypeOf(a.GetObject()).Elem()).Interface().(runtime.Object)
		},
		DefaultQualifiedResource: resource,
		KeyFunc:                  func(_ context.Context, name string) (string, error) { return name, nil },
		ObjectNameFunc: func(object runtime.Object) (string, error) {
			m, err := meta.Accessor(object)
			if err != nil {
				return "", err
			}
			return m.GetName(), nil
		},
		CreateStrategy: s.Create, UpdateStrategy: s.Update,
		Storage: genericregistry.DryRunnableStorage{Storage: standIn{resource: resource}},
		BeginCreate: func(ctx context.Context, object runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
			if err := allocatable(ctx, object); err != nil {
				return nil, err
			}
			allocate(object, nil)
			return func(context.Context, bool) {}, nil
		},
		BeginUpdate: func(_ context.Context, object, stored runtime.Object, _ *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
			allocate(object, stored)
			return func(context.Context, bool) {}, nil
		},
	}
}

// allocatable returns the reason why a new service cannot have the addresses that it requests; nil if it can, or
// if the ranges of the cluster are unknown.
func allocatable(ctx context.Context, object runtime.Object) error {
	s, ok := object.(*core.Service)
	if !ok || s.Spec.Type == core.ServiceTypeExternalName || s.Spec.ClusterIP == "" || s.Spec.ClusterIP == core.ClusterIPNone {
		return nil
	}
	reader := ReaderOf(ctx)
	ranges, err := reader.List(ctx, networking.Resource("servicecidrs"), "")
	if err != nil || len(ranges) == 0 {
		return err
	}
	addresses := s.Spec.ClusterIPs
	if len(addresses) == 0 {
		addresses = []string{s.Spec.ClusterIP}
	}
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			// Validation reports the error.
			continue
		}
		within, family := false, []string(nil)
		for _, r := range ranges {
			for _, cidr := range r.(*networking.ServiceCIDR).Spec.CIDRs {
				if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Addr().Is4() == address.Is4() {
					within, family = within || prefix.Contains(address), append(family, cidr)
				}
			}
		}
		why := "provided IP is already allocated"
		if !within {
			why = fmt.Sprintf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", text, strings.Join(family, ", "))
		} else if _, err := reader.Get(ctx, networking.Resource("ipaddresses"), "", text); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return err
		}
		return apierrors.NewInvalid(core.Kind("Service"), s.Name, field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), addresses, fmt.Sprintf("failed to allocate IP %s: %s", text, why))})
	}
	return nil
}

// allocate gives a service an address, as a server does before it validates the service. A changed service
// keeps its address.
func allocate(object, stored runtime.Object) {
	s, ok := object.(*core.Service)
	if !ok || s.Spec.Type == core.ServiceTypeExternalName {
		return
	}
	spec := &s.Spec
	if old, ok := stored.(*core.Service); ok && old.Spec.Type != core.ServiceTypeExternalName {
		if spec.ClusterIP == "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIP, spec.ClusterIPs = old.Spec.ClusterIP, slices.Clone(old.Spec.ClusterIPs)
		}
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = slices.Clone(old.Spec.IPFamilies)
		}
		spec.IPFamilyPolicy = cmp.Or(spec.IPFamilyPolicy, old.Spec.IPFamilyPolicy)
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIP = sampleAddress
	}
	if len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	policy, families := core.IPFamilyPolicySingleStack, []core.IPFamily{core.IPv4Protocol}
	if spec.ClusterIP == core.ClusterIPNone && len(spec.Selector) == 0 {
		policy, families = core.IPFamilyPolicyRequireDualStack, append(families, core.IPv6Protocol)
	}
	spec.IPFamilyPolicy = cmp.Or(spec.IPFamilyPolicy, &policy)
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = families
	}
}

// Binds reports whether a resource and a subresource, empty for none, bind pods to nodes.
func Binds(resource schema.GroupResource, subresource string) bool {
	return resource == core.Resource("bindings") && subresource == "" || resource == core.Resource("pods") && subresource == "binding"
}

// Reader reads the objects and the permissions for a request.
type Reader interface {
	upstream.Authorizer
	// Get returns an object, and List the objects of a namespace, or of all namespaces if it is
	// empty, as internal types.
	Get(ctx context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error)
	List(ctx context.Context, resource schema.GroupResource, namespace string) ([]runtime.Object, error)
}

type readerKey struct{}

// WithReader returns a context for requests to registries without a server.
func WithReader(ctx context.Context, r Reader) context.Context {
	return context.WithValue(ctx, readerKey{}, r)
}

// ReaderOf returns the Reader of a context of WithReader.
func ReaderOf(ctx context.Context) Reader { return ctx.Value(readerKey{}).(Reader) }

// WithoutEtcd makes registries read the objects of the Reader of a context.
func WithoutEtcd() generic.RESTOptionsGetter { return standIn{} }

// standIn replaces etcd with the objects of the Reader of a context.
type standIn struct {
	apistorage.Interface
	resource schema.GroupResource
}

// Versioner implements storage.Interface.
func (standIn) Versioner() apistorage.Versioner { return apistorage.APIObjectVersioner{} }

// Get implements storage.Interface.
func (s standIn) Get(ctx context.Context, key string, _ apistorage.GetOptions, into runtime.Object) error {
	object, err := ReaderOf(ctx).Get(ctx, s.resource, request.NamespaceValue(ctx), path.Base(key))
	switch {
	case apierrors.IsNotFound(err):
		return apistorage.NewKeyNotFoundError(key, 0)
	case err == nil:
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
	}
	return err
}

// GetList implements storage.Interface.
func (s standIn) GetList(ctx context.Context, _ string, _ apistorage.ListOptions, into runtime.Object) error {
	list, err := ReaderOf(ctx).List(ctx, s.resource, request.NamespaceValue(ctx))
	if err != nil {
		return err
	}
	return meta.SetList(into, list)
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (standIn) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig: (&storagebackend.Config{}).ForResource(resource),
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
			apistorage.AttrFunc, apistorage.IndexerFuncs, *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
			return standIn{resource: resource}, func() {}, nil
		},
		ResourcePrefix: resource.Resource,
	}, nil
}
