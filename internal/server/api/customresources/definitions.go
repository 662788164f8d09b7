package customresources

import (
	"context"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kserializer "k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// scheme is upstream's, which has CustomResourceDefinition and the types that every server returns.
var scheme = apiserver.Scheme

// codecs encodes and decodes the types of scheme.
var codecs = kserializer.NewCodecFactory(scheme,
	kserializer.WithStreamingCollectionEncodingToJSON(), kserializer.WithStreamingCollectionEncodingToProtobuf())

// Accepts returns the reason why a server refuses a CRD, or the change of an old one; old is nil for a new
// one.
func Accepts(ctx context.Context, object, old *unstructured.Unstructured) error {
	ctx = request.WithNamespace(ctx, metav1.NamespaceNone)
	internal := func(u *unstructured.Unstructured) (runtime.Object, error) {
		data, err := u.MarshalJSON()
		if err != nil {
			return nil, err
		}
		return runtime.Decode(codecs.UniversalDecoder(), data)
	}
	strategy := customresourcedefinition.NewStrategy(scheme)
	if old == nil {
		made, err := internal(object)
		if err != nil {
			return err
		}
		m, err := meta.Accessor(made)
		if err != nil {
			return err
		}
		rest.FillObjectMetaSystemFields(m)
		return rest.BeforeCreate(strategy, ctx, made)
	}
	changed := object.DeepCopy()
	changed.SetResourceVersion(old.GetResourceVersion())
	made, err := internal(changed)
	if err != nil {
		return err
	}
	stored, err := internal(old)
	if err != nil {
		return err
	}
	return rest.BeforeUpdate(strategy, ctx, made, stored)
}

// definitionCodec stores CRDs in protobuf, which costs a fraction of the CPU time of JSON. Upstream
// stores JSON. Both upstream and this server read either form.
func definitionCodec() runtime.Codec {
	return storedCodec{codecs.CodecForVersions(protobuf.NewSerializer(scheme, scheme), codecs.UniversalDeserializer(),
		apiextensionsv1.SchemeGroupVersion, runtime.InternalGroupVersioner)}
}

// DefinitionEndpoints returns the endpoints of CustomResourceDefinition itself,
// in version v1: the resource and its status.
func (s *Server) DefinitionEndpoints() ([]*resources.Endpoint, error) {
	config := s.options.Storage
	v1 := apiextensionsv1.SchemeGroupVersion
	config.Codec = definitionCodec()
	config.EncodeVersioner = runtime.NewMultiGroupVersioner(v1, schema.GroupKind{Group: v1.Group})
	resource := apiextensions.Resource("customresourcedefinitions")
	options := s.options.Factory.For(&storagebackend.ConfigForResource{Config: config, GroupResource: resource}, resource.Group+"/"+resource.Resource)
	definitions, err := customresourcedefinition.NewREST(scheme, options)
	if err != nil {
		return nil, err
	}
	models := openapi.NewModels(nil, scheme)
	kinds := []schema.GroupVersionKind{v1.WithKind("CustomResourceDefinition")}
	status := customresourcedefinition.NewStatusREST(scheme, definitions)
	group := resources.Group{
		GroupVersion: v1,
		Storage: map[string]rest.Storage{
			"customresourcedefinitions":        definitionStorage{definitions, s.arrivals},
			"customresourcedefinitions/status": status,
		},
		Scheme:              scheme,
		Codec:               initialization.NewCodec(codecs),
		ParameterCodec:      metav1.ParameterCodec,
		TypeConverter:       resources.NewTypeConverter(sync.OnceValues(func() (managedfields.TypeConverter, error) { return models.TypeConverter(scheme, kinds) })),
		Equivalents:         s.options.Equivalents,
		Authorizer:          s.options.Authorizer,
		MaxRequestBodyBytes: s.options.MaxRequestBodyBytes,
	}
	endpoints, err := group.Endpoints()
	if err != nil {
		return nil, err
	}
	for _, e := range endpoints {
		if e.Scope.Subresource != "status" {
			continue
		}
		if e.Bind, err = bindStatus(*e.Scope, group.TypeConverter, status.GetResetFields()); err != nil {
			return nil, err
		}
		e.Admit = withStoredSpec
	}
	return endpoints, nil
}

// withStoredSpec adds the stored spec to the statuses that controllers of this server write, before
// admission sees them. A write of the status never changes the spec, and it fails if the CRD has
// changed meanwhile, so that a controller can work without the schemas (statusWriting): they are
// most of a CRD.
func withStoredSpec(next admission.Interface) admission.Interface {
	return ahead(next, admission.Update, func(a admission.Attributes) error {
		if by := a.GetUserInfo(); by == nil || by.GetName() != user.APIServerUser {
			return nil
		}
		crd, sent := a.GetObject().(*apiextensions.CustomResourceDefinition)
		if stored, ok := a.GetOldObject().(*apiextensions.CustomResourceDefinition); ok && sent {
			crd.Spec = stored.Spec
		}
		return nil
	})
}

// bindStatus returns the scopes of requests for the status of CRDs. An update computes the managers
// of fields without the spec: a write of the status never changes the spec, and the spec is nearly
// all of a CRD. A patch may be a server-side apply, which makes an object of the computed fields.
func bindStatus(scope handlers.RequestScope, types managedfields.TypeConverter, reset map[fieldpath.APIVersion]*fieldpath.Set) (func(context.Context) *handlers.RequestScope, error) {
	updates := scope
	var err error
	updates.FieldManager, err = managedfields.NewDefaultFieldManager(types, withoutSpec{scope.UnsafeConvertor}, scope.Defaulter, scope.Creater,
		scope.Kind, scope.HubGroupVersion, scope.Subresource, fieldpath.NewExcludeFilterSetMap(reset))
	return func(ctx context.Context) *handlers.RequestScope {
		if info, ok := request.RequestInfoFrom(ctx); ok && info.Verb == "update" {
			return &updates
		}
		return &scope
	}, err
}

// withoutSpec removes the spec of CRDs that it converts.
type withoutSpec struct{ runtime.ObjectConvertor }

// ConvertToVersion implements runtime.ObjectConvertor.
func (w withoutSpec) ConvertToVersion(in runtime.Object, version runtime.GroupVersioner) (runtime.Object, error) {
	if crd, ok := in.(*apiextensions.CustomResourceDefinition); ok {
		in = &apiextensions.CustomResourceDefinition{TypeMeta: crd.TypeMeta, ObjectMeta: crd.ObjectMeta, Status: crd.Status}
	}
	return w.ObjectConvertor.ConvertToVersion(in, version)
}
