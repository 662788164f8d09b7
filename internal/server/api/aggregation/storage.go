package aggregation

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
	registry "k8s.io/kube-aggregator/pkg/registry/apiservice"
	registryetcd "k8s.io/kube-aggregator/pkg/registry/apiservice/etcd"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage"
)

// GroupVersion is the group version of APIServices.
var GroupVersion = apiregistrationv1.SchemeGroupVersion

const (
	groupName = apiregistrationv1.GroupName
	// Resource is the plural of APIService.
	Resource = "apiservices"
)

// Prefix is the key prefix of APIServices in etcd, below the prefix of all objects, as in
// kube-apiserver.
const Prefix = groupName + "/" + Resource

// Storage opens the store of APIServices, which also serves their status (S22.1).
func Storage(factory *storage.Factory, config storagebackend.Config) map[string]rest.Storage {
	config.Codec = scheme.Codecs.LegacyCodec(GroupVersion)
	config.EncodeVersioner = runtime.NewMultiGroupVersioner(GroupVersion, schema.GroupKind{Group: groupName})
	services := registryetcd.NewREST(scheme.Scheme, factory.For(config.ForResource(apiregistration.Resource(Resource)), Prefix))
	strategy := ownGroup{registry.NewStrategy(scheme.Scheme)}
	services.CreateStrategy, services.UpdateStrategy = strategy, strategy
	return map[string]rest.Storage{
		Resource:             services,
		Resource + "/status": registryetcd.NewStatusREST(scheme.Scheme, services),
	}
}

// ownGroup is the strategy that rejects APIServices for the group of this server's own kinds: clients would treat
// traces of another server as traces of this one (S22.29).
type ownGroup struct{ rest.RESTCreateUpdateStrategy }

func (o ownGroup) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return append(o.RESTCreateUpdateStrategy.Validate(ctx, obj), validateGroup(obj)...)
}

func (o ownGroup) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := o.RESTCreateUpdateStrategy.ValidateUpdate(ctx, obj, old)
	if len(validateGroup(old)) > 0 {
		return errs
	}
	return append(errs, validateGroup(obj)...)
}

func validateGroup(obj runtime.Object) field.ErrorList {
	if spec := obj.(*apiregistration.APIService).Spec; spec.Group == "gatehouse.dev" && spec.Service != nil {
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "service"), "this server serves gatehouse.dev itself, with the traces of its own requests: gatehouse agent is for clusters with another API server")}
	}
	return nil
}
