package customresources

import (
	"fmt"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kserializer "k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	scaleclient "k8s.io/client-go/scale"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/stack"
)

// patchTypes are the patches custom objects accept. Strategic merge patches need
// Go types.
var patchTypes = []string{
	"application/json-patch+json",
	"application/merge-patch+json",
	"application/apply-patch+yaml",
}

// bodyTypes are the media types custom objects are read in.
var bodyTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scaleCodecs reads and writes the objects of scale subresources.
var scaleCodecs = sync.OnceValue(func() kserializer.CodecFactory {
	return kserializer.NewCodecFactory(scaleclient.NewScaleConverter().Scheme(),
		kserializer.WithStreamingCollectionEncodingToJSON(), kserializer.WithStreamingCollectionEncodingToProtobuf())
})

// addStore makes the store of a version, and those of its subresources.
func (b *build) addStore(v *apiextensionsv1.CustomResourceDefinitionVersion) error {
	names := b.crd.Status.AcceptedNames
	gv := b.groupVersion(v.Name)
	internal, err := validationOf(v)
	if err != nil {
		return err
	}
	var props, statusProps *apiextensions.JSONSchemaProps
	if internal != nil {
		props = internal.OpenAPIV3Schema
	}
	if props != nil {
		if p, ok := props.Properties["status"]; ok {
			statusProps = &p
		}
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return err
	}
	var statusSpec *apiextensions.CustomResourceSubresourceStatus
	var scaleSpec *apiextensions.CustomResourceSubresourceScale
	var statusValidator validation.SchemaValidator
	if v.Subresources != nil && v.Subresources.Status != nil {
		statusSpec = &apiextensions.CustomResourceSubresourceStatus{}
		if statusProps != nil {
			if statusValidator, _, err = validation.NewSchemaValidator(statusProps); err != nil {
				return err
			}
		}
	}
	if v.Subresources != nil && v.Subresources.Scale != nil {
		scaleSpec = &apiextensions.CustomResourceSubresourceScale{
			SpecReplicasPath:   v.Subresources.Scale.SpecReplicasPath,
			StatusReplicasPath: v.Subresources.Scale.StatusReplicasPath,
			LabelSelectorPath:  v.Subresources.Scale.LabelSelectorPath,
		}
	}
	// With an error comes a convertor that prints names only.
	table, _ := tableconvertor.New(columns(v))

	config := b.server.options.Storage
	config.Codec = storageCodec(b.safe, b.schemas, b.groupVersion(b.stored), gv)
	resource := b.groupResource()
	strategy := customresource.NewStrategy(typer{scheme}, b.crd.Spec.Scope == apiextensionsv1.NamespaceScoped, gv.WithKind(names.Kind),
		validator, statusValidator, b.schemas.byVersion[v.Name], statusSpec, scaleSpec, v.SelectableFields)
	store, err := customresource.NewStorage(resource, schema.GroupResource{Group: gv.Group, Resource: names.Singular},
		gv.WithKind(names.Kind), gv.WithKind(names.ListKind), strategy,
		b.server.options.Factory.For(&storagebackend.ConfigForResource{Config: config, GroupResource: resource}, resource.Group+"/"+resource.Resource),
		names.Categories, table, b.replicas)
	if err != nil {
		return err
	}
	store.CustomResource.BeginCreate = beginCreate(b.creations, resource)
	b.stores[v.Name] = store
	return nil
}

// addEndpoints makes the endpoints of a served version.
func (b *build) addEndpoints(v *apiextensionsv1.CustomResourceDefinitionVersion) error {
	gv := b.groupVersion(v.Name)
	store := b.stores[v.Name]
	namespaced := b.crd.Spec.Scope == apiextensionsv1.NamespaceScoped
	parameters := runtime.NewScheme()
	parameters.AddUnversionedTypes(gv, &metav1.ListOptions{}, &metav1.GetOptions{}, &metav1.DeleteOptions{})
	t := typer{parameters}
	serializer := newSerializer(t, b.safe, b.schemas)

	scope := handlers.RequestScope{
		Namer:                    handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !namespaced},
		Serializer:               initialization.NewCodec(serializer),
		StandardSerializers:      textual(serializer.media),
		ParameterCodec:           runtime.NewParameterCodec(parameters),
		Creater:                  stack.Creater(creator{}),
		Convertor:                b.safe,
		UnsafeConvertor:          b.convertor,
		Defaulter:                defaulter{b.schemas, parameters},
		Typer:                    t,
		TableConvertor:           store.CustomResource,
		EquivalentResourceMapper: b.equivalents,
		Authorizer:               b.server.options.Authorizer,
		Resource:                 gv.WithResource(b.crd.Status.AcceptedNames.Plural),
		Kind:                     gv.WithKind(b.crd.Status.AcceptedNames.Kind),
		// Objects are in memory in the version of the request.
		HubGroupVersion:     gv,
		MetaGroupVersion:    metav1.SchemeGroupVersion,
		MaxRequestBodyBytes: b.server.options.MaxRequestBodyBytes,
	}
	main := &resources.Endpoint{
		Storage:   &instances{REST: store.CustomResource, retired: b.retired},
		BodyTypes: bodyTypes,
		Admit:     func(next admission.Interface) admission.Interface { return refuseCreate{next, b.creations} },
	}
	if err := b.add(v, main, scope, store.CustomResource.GetResetFields()); err != nil {
		return err
	}
	if store.Status != nil {
		scope := scope
		scope.Subresource = "status"
		if err := b.add(v, &resources.Endpoint{Storage: status{store.Status}, BodyTypes: bodyTypes}, scope, b.statusResetFields()); err != nil {
			return err
		}
	}
	if store.Scale != nil {
		scope := scope
		scope.Subresource = "scale"
		scope.Serializer = scaleCodecs()
		scope.StandardSerializers = nil
		scope.Kind = scaleKind
		// The columns are our own and have valid paths.
		scope.TableConvertor, _ = tableconvertor.New(scaleColumns)
		if err := b.add(v, &resources.Endpoint{Storage: scale{store.Scale}}, scope, nil); err != nil {
			return err
		}
	}
	return nil
}

// add completes an endpoint.
func (b *build) add(v *apiextensionsv1.CustomResourceDefinitionVersion, e *resources.Endpoint, scope handlers.RequestScope, reset map[fieldpath.APIVersion]*fieldpath.Set) error {
	var err error
	scope.FieldManager, err = managedfields.NewDefaultCRDFieldManager(b.typeConverter, scope.Convertor, scope.Defaulter,
		scope.Creater, scope.Kind, scope.HubGroupVersion, scope.Subresource, fieldpath.NewExcludeFilterSetMap(reset))
	if err != nil {
		return fmt.Errorf("field manager: %w", err)
	}
	e.Scope, e.Kind, e.PatchTypes, e.Custom = &scope, scope.Kind, patchTypes, true
	e.Discovery = discovered(b.crd, v, scope.Subresource)
	if b.convertor.webhook != nil {
		e.Bind = b.convertor.bind(scope)
	}
	if v.Deprecated {
		e.Deprecated = true
		e.Warnings = []string{deprecation(b.crd, v)}
	}
	b.endpoints[place{v.Name, scope.Subresource}] = e
	return nil
}

// statusResetFields says, for every version, which fields a write of the status
// subresource does not touch.
func (b *build) statusResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, s := range b.stores {
		if s.Status == nil {
			continue
		}
		for version, fields := range s.Status.GetResetFields() {
			reset[version] = fields
		}
	}
	return reset
}

// deprecation is the warning sent with every response of a deprecated version.
func deprecation(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
	best := ""
	for _, other := range crd.Spec.Versions {
		if other.Served && !other.Deprecated && version.CompareKubeAwareVersionStrings(other.Name, v.Name) > 0 &&
			(best == "" || version.CompareKubeAwareVersionStrings(other.Name, best) > 0) {
			best = other.Name
		}
	}
	if best != "" {
		text += fmt.Sprintf("; use %s/%s %s", crd.Spec.Group, best, crd.Spec.Names.Kind)
	}
	return text
}

var (
	_ rest.Storage = status{}
	_ rest.Patcher = status{}
	_ rest.Storage = scale{}
	_ rest.Patcher = scale{}
	_ rest.Watcher = &instances{}
)
