package stores

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/apis/authentication"
	authenticationvalidation "k8s.io/kubernetes/pkg/apis/authentication/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
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

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// Builtin returns the registry without a server for a request about a built-in resource or subresource; nil for
// other requests. It reads stored objects by the catalog.Reader of a context.
func Builtin(a admission.Attributes) (rest.Storage, error) {
	resource := a.GetResource()
	resource.Resource = path.Join(resource.Resource, a.GetSubresource())
	if s, ok := plain[resource.GroupResource()]; ok {
		return s.Registry(a), nil
	}
	switch {
	case catalog.Binds(a.GetResource().GroupResource(), a.GetSubresource()):
		return binder{}, nil
	case resource.GroupResource() == core.Resource("serviceaccounts/token"):
		return tokens{}, nil
	}
	known, err := unstored()
	return known[resource], err
}

// binder represents the registries that bind pods to nodes, which have no strategy.
type binder struct{}

// New implements rest.Storage.
func (binder) New() runtime.Object { return &core.Binding{} }

// Destroy implements rest.Storage.
func (binder) Destroy() {}

// Create implements rest.Creater.
func (binder) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if errs := validation.ValidatePodBinding(object.(*core.Binding)); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return object, validate(ctx, object)
}

// tokens represents the registry of tokens of service accounts, which has no strategy. It issues none.
type tokens struct{}

// New implements rest.Storage.
func (tokens) New() runtime.Object { return &authentication.TokenRequest{} }

// Destroy implements rest.Storage.
func (tokens) Destroy() {}

// Create implements rest.Creater.
func (tokens) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if errs := authenticationvalidation.ValidateTokenRequest(object.(*authentication.TokenRequest)); len(errs) > 0 {
		return nil, apierrors.NewInvalid(authentication.Kind("TokenRequest"), "", errs)
	}
	return object, validate(ctx, object)
}

// plain are the strategies of the core group, whose storages need etcd when they are made.
var plain = map[schema.GroupResource]catalog.Strategies{
	{Resource: "configmaps"}:                    {Create: configmap.Strategy, Update: configmap.Strategy},
	{Resource: "endpoints"}:                     {Create: endpoint.Strategy, Update: endpoint.Strategy},
	{Resource: "events"}:                        {Create: event.Strategy, Update: event.Strategy},
	{Resource: "limitranges"}:                   {Create: limitrange.Strategy, Update: limitrange.Strategy},
	{Resource: "namespaces"}:                    {Create: namespace.Strategy, Update: namespace.Strategy},
	{Resource: "nodes"}:                         {Create: node.Strategy, Update: node.Strategy},
	{Resource: "persistentvolumeclaims"}:        {Create: persistentvolumeclaim.Strategy, Update: persistentvolumeclaim.Strategy},
	{Resource: "persistentvolumes"}:             {Create: persistentvolume.Strategy, Update: persistentvolume.Strategy},
	{Resource: "pods"}:                          {Create: pod.Strategy, Update: pod.Strategy},
	{Resource: "podtemplates"}:                  {Create: podtemplate.Strategy, Update: podtemplate.Strategy},
	{Resource: "replicationcontrollers"}:        {Create: replicationcontroller.Strategy, Update: replicationcontroller.Strategy},
	{Resource: "resourcequotas"}:                {Create: resourcequota.Strategy, Update: resourcequota.Strategy},
	{Resource: "secrets"}:                       {Create: secret.Strategy, Update: secret.Strategy},
	{Resource: "serviceaccounts"}:               {Create: serviceaccount.Strategy, Update: serviceaccount.Strategy},
	{Resource: "services"}:                      {Create: service.Strategy, Update: service.Strategy},
	{Resource: "namespaces/finalize"}:           {Update: namespace.FinalizeStrategy},
	{Resource: "namespaces/status"}:             {Update: namespace.StatusStrategy},
	{Resource: "nodes/status"}:                  {Update: node.StatusStrategy},
	{Resource: "persistentvolumeclaims/status"}: {Update: persistentvolumeclaim.StatusStrategy},
	{Resource: "persistentvolumes/status"}:      {Update: persistentvolume.StatusStrategy},
	{Resource: "pods/ephemeralcontainers"}:      {Update: pod.EphemeralContainersStrategy},
	{Resource: "pods/resize"}:                   {Update: pod.ResizeStrategy},
	{Resource: "pods/status"}:                   {Update: pod.StatusStrategy},
	{Resource: "replicationcontrollers/status"}: {Update: replicationcontroller.StatusStrategy},
	{Resource: "resourcequotas/status"}:         {Update: resourcequota.StatusStrategy},
	{Resource: "services/status"}:               {Update: service.StatusStrategy},
}

// unstored makes the storages of the other groups, without storage for objects.
var unstored = sync.OnceValues(func() (map[schema.GroupVersionResource]rest.Storage, error) {
	nowhere := &restclient.Config{Host: "https://gatehouse.invalid", Transport: unreachable{}}
	client, err := kubernetes.NewForConfig(nowhere)
	if err != nil {
		return nil, err
	}
	o := &Options{Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Authorizer: authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		return catalog.ReaderOf(ctx).Authorize(ctx, a)
	})}
	known := map[schema.GroupVersionResource]rest.Storage{}
	for _, p := range o.namedGroups() {
		info, err := p.NewRESTStorage(Default(), catalog.WithoutEtcd())
		if err != nil {
			return nil, fmt.Errorf("kinds of group %q: %w", p.GroupName(), err)
		}
		for version, storages := range info.VersionedResourcesStorageMap {
			for name, storage := range storages {
				known[schema.GroupVersionResource{Group: p.GroupName(), Version: version, Resource: name}] = storage
			}
		}
	}
	return known, nil
})

// unreachable is a transport that always fails.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("kinds without a server need no request")
}
