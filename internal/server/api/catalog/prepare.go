package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
)

// sampleUID stands for the UID that a server gives a new object.
const sampleUID types.UID = "00000000-0000-0000-0000-000000000000"

// sampleAddress stands for the address that a server gives a service.
const sampleAddress = "10.96.0.10"

// Prepare is what a registry makes of the object of a request between the passes of admission: it drops
// what the request must not set, and sets what follows. The error says why the object is not valid then.
type Prepare func(context.Context, runtime.Object) error

// Strategies are what a registry makes of objects; nil for a registry without creates, or updates.
type Strategies struct {
	Create rest.RESTCreateStrategy
	Update rest.RESTUpdateStrategy
}

// StrategiesOf returns those of a storage.
func StrategiesOf(storage rest.Storage) (s Strategies) {
	if of, ok := storage.(interface {
		GetCreateStrategy() rest.RESTCreateStrategy
	}); ok {
		s.Create = of.GetCreateStrategy()
	}
	if of, ok := storage.(interface {
		GetUpdateStrategy() rest.RESTUpdateStrategy
	}); ok {
		s.Update = of.GetUpdateStrategy()
	}
	return s
}

// Prepare returns what the registry makes of the object of a request; nil for a request that it does not
// prepare, or that is about a subresource. The stored object is not changed.
func (s Strategies) Prepare(a admission.Attributes) Prepare {
	if a.GetSubresource() != "" || a.GetObject() == nil {
		return nil
	}
	var create rest.RESTCreateStrategy
	var update rest.RESTUpdateStrategy
	switch a.GetOperation() {
	case admission.Create:
		create = s.Create
	case admission.Update:
		_, storedAsIs := a.GetOldObject().(runtime.Unstructured)
		_, sentAsIs := a.GetObject().(runtime.Unstructured)
		if a.GetOldObject() != nil && storedAsIs == sentAsIs {
			update = s.Update
		}
	}
	switch {
	case create != nil:
		return func(ctx context.Context, object runtime.Object) error {
			m, err := meta.Accessor(object)
			if err != nil {
				return err
			}
			m.SetUID(sampleUID)
			m.SetCreationTimestamp(metav1.Now())
			m.SetManagedFields(nil)
			allocate(object, nil)
			return rest.BeforeCreate(create, about(ctx, a, "create", create.NamespaceScoped()), object)
		}
	case update != nil:
		return func(ctx context.Context, object runtime.Object) error {
			m, err := meta.Accessor(object)
			if err != nil {
				return err
			}
			old := a.GetOldObject().DeepCopyObject()
			stored, err := meta.Accessor(old)
			if err != nil {
				return err
			}
			allocate(object, old)
			// Objects of files have nothing that a server sets, and may name no namespace.
			stored.SetNamespace(cmp.Or(stored.GetNamespace(), m.GetNamespace()))
			stored.SetUID(cmp.Or(stored.GetUID(), m.GetUID()))
			if stored.GetCreationTimestamp().Time.IsZero() {
				stored.SetCreationTimestamp(m.GetCreationTimestamp())
			}
			stored.SetResourceVersion(cmp.Or(stored.GetResourceVersion(), "1"))
			m.SetResourceVersion(cmp.Or(m.GetResourceVersion(), stored.GetResourceVersion()))
			return rest.BeforeUpdate(update, about(ctx, a, "update", update.NamespaceScoped()), object, old)
		}
	}
	return nil
}

// about returns the context of a request, as strategies read it.
func about(ctx context.Context, a admission.Attributes, verb string, namespaced bool) context.Context {
	in := metav1.NamespaceNone
	if namespaced {
		in = a.GetNamespace()
	}
	r := a.GetResource()
	ctx = request.WithNamespace(ctx, in)
	if who := a.GetUserInfo(); who != nil {
		ctx = request.WithUser(ctx, who)
	}
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Namespace: in, Name: a.GetName(),
	})
}

// allocate gives a service an address, as a server does before it validates the service. A changed service
// keeps what it was given.
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

// Builtin returns the strategies of a built-in resource; none for another one. They ask no server, so that
// what another object decides is not known to them.
func Builtin(resource schema.GroupVersionResource) (Strategies, error) {
	if s, ok := plain[resource.GroupResource()]; ok {
		return s, nil
	}
	known, err := unstored()
	return known[resource], err
}

// plain are the strategies of the core group, whose storages look for etcd when they are made, and of RBAC, whose
// storages hide theirs.
var plain = map[schema.GroupResource]Strategies{
	{Resource: "configmaps"}:                                 {configmap.Strategy, configmap.Strategy},
	{Resource: "endpoints"}:                                  {endpoint.Strategy, endpoint.Strategy},
	{Resource: "events"}:                                     {event.Strategy, event.Strategy},
	{Resource: "limitranges"}:                                {limitrange.Strategy, limitrange.Strategy},
	{Resource: "namespaces"}:                                 {namespace.Strategy, namespace.Strategy},
	{Resource: "nodes"}:                                      {node.Strategy, node.Strategy},
	{Resource: "persistentvolumeclaims"}:                     {persistentvolumeclaim.Strategy, persistentvolumeclaim.Strategy},
	{Resource: "persistentvolumes"}:                          {persistentvolume.Strategy, persistentvolume.Strategy},
	{Resource: "pods"}:                                       {pod.Strategy, pod.Strategy},
	{Resource: "podtemplates"}:                               {podtemplate.Strategy, podtemplate.Strategy},
	{Resource: "replicationcontrollers"}:                     {replicationcontroller.Strategy, replicationcontroller.Strategy},
	{Resource: "resourcequotas"}:                             {resourcequota.Strategy, resourcequota.Strategy},
	{Resource: "secrets"}:                                    {secret.Strategy, secret.Strategy},
	{Resource: "serviceaccounts"}:                            {serviceaccount.Strategy, serviceaccount.Strategy},
	{Resource: "services"}:                                   {service.Strategy, service.Strategy},
	{Group: rbac.GroupName, Resource: "roles"}:               {role.Strategy, role.Strategy},
	{Group: rbac.GroupName, Resource: "rolebindings"}:        {rolebinding.Strategy, rolebinding.Strategy},
	{Group: rbac.GroupName, Resource: "clusterroles"}:        {clusterrole.Strategy, clusterrole.Strategy},
	{Group: rbac.GroupName, Resource: "clusterrolebindings"}: {clusterrolebinding.Strategy, clusterrolebinding.Strategy},
}

// unstored makes the storages of the other groups, without a place for objects.
var unstored = sync.OnceValues(func() (map[schema.GroupVersionResource]Strategies, error) {
	nowhere := &restclient.Config{Host: "https://gatehouse.invalid", Transport: unreachable{}}
	client, err := kubernetes.NewForConfig(nowhere)
	if err != nil {
		return nil, err
	}
	o := &Options{Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer()}
	known := map[schema.GroupVersionResource]Strategies{}
	for _, p := range o.others() {
		info, err := p.NewRESTStorage(Default(), noStorage{})
		if err != nil {
			return nil, fmt.Errorf("kinds of group %q: %w", p.GroupName(), err)
		}
		for version, storages := range info.VersionedResourcesStorageMap {
			for name, storage := range storages {
				known[schema.GroupVersionResource{Group: p.GroupName(), Version: version, Resource: name}] = StrategiesOf(storage)
			}
		}
	}
	return known, nil
})

// unreachable is a transport to nowhere.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("kinds without a server ask nobody")
}

// noStorage gives storages no place for their objects.
type noStorage struct{}

var _ generic.RESTOptionsGetter = noStorage{}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (noStorage) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig: (&storagebackend.Config{}).ForResource(resource),
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
			apistorage.AttrFunc, apistorage.IndexerFuncs, *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
			return struct{ apistorage.Interface }{}, func() {}, nil
		},
		ResourcePrefix: resource.Resource,
	}, nil
}
