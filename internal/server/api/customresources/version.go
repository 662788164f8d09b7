package customresources

import (
	"context"
	"fmt"
	"maps"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kserializer "k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

// strategies are the strategies for writing objects of a version.
type strategies struct {
	main strategy
	// status is the strategy of the status subresource; nil if there is no such subresource.
	status strategy
}

// strategy has the interfaces of upstream's strategies of custom resources.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
}

// newStrategies compiles the schemas of a version.
func (d *definition) newStrategies(index int) (s strategies, err error) {
	crd, err := d.whole.get()
	if err != nil {
		return s, err
	}
	structural, err := d.schemas.of(crd.Spec.Versions[index].Name)
	if err != nil {
		return s, err
	}
	named := *crd
	named.Status.AcceptedNames = d.crd.Status.AcceptedNames
	return newStrategies(&named, index, structural)
}

// subresources returns the subresources of a version in the form that strategies use, nil if there
// are none.
func subresources(v *apiextensionsv1.CustomResourceDefinitionVersion) (status *apiextensions.CustomResourceSubresourceStatus, scale *apiextensions.CustomResourceSubresourceScale) {
	if v.Subresources != nil && v.Subresources.Status != nil {
		status = &apiextensions.CustomResourceSubresourceStatus{}
	}
	if v.Subresources != nil && v.Subresources.Scale != nil {
		scale = &apiextensions.CustomResourceSubresourceScale{
			SpecReplicasPath:   v.Subresources.Scale.SpecReplicasPath,
			StatusReplicasPath: v.Subresources.Scale.StatusReplicasPath,
			LabelSelectorPath:  v.Subresources.Scale.LabelSelectorPath,
		}
	}
	return status, scale
}

// lateStrategy is a strategy without schemas. It validates by another strategy, whose schemas are
// compiled on first use. Upstream's strategies need schemas only for validation.
type lateStrategy struct {
	strategy
	compiled func() (strategy, error)
}

// Validate implements rest.RESTCreateStrategy.
func (s lateStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	compiled, err := s.compiled()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return compiled.Validate(ctx, obj)
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s lateStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	compiled, err := s.compiled()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return compiled.ValidateUpdate(ctx, obj, old)
}

// addStore makes the store of a version, and the stores of its subresources.
func (b *build) addStore(v *apiextensionsv1.CustomResourceDefinitionVersion) error {
	names := b.crd.Status.AcceptedNames
	gv := b.groupVersion(v.Name)
	// After an error, table prints names only.
	table, _ := tableconvertor.New(columns(v))

	config := b.server.options.Storage
	config.Codec = storageCodec(b.safe, b.schemas, b.groupVersion(b.definition.stored), gv)
	resource := b.groupResource()
	statusSpec, scaleSpec := subresources(v)
	bare := customresource.NewStrategy(typer(scheme), b.namespaced(), gv.WithKind(names.Kind), nil, nil, nil, statusSpec, scaleSpec, v.SelectableFields)
	made, err := customresource.NewStorage(resource, schema.GroupResource{Group: gv.Group, Resource: names.Singular},
		gv.WithKind(names.Kind), gv.WithKind(names.ListKind), bare,
		b.server.options.Factory.For(&storagebackend.ConfigForResource{Config: config, GroupResource: resource}, resource.Group+"/"+resource.Resource),
		names.Categories, table, b.replicas)
	if err != nil {
		return err
	}
	compiled := b.strategies[v.Name].get
	s := versionStore{REST: made.CustomResource, scale: made.Scale}
	main := lateStrategy{bare, func() (strategy, error) {
		s, err := compiled()
		return s.main, err
	}}
	s.CreateStrategy, s.UpdateStrategy = main, main
	s.BeginCreate = beginCreate(b.creations, resource)
	if statusSpec != nil {
		late := lateStrategy{customresource.NewStatusStrategy(bare), func() (strategy, error) {
			s, err := compiled()
			return s.status, err
		}}
		of := *s.Store
		of.UpdateStrategy, of.ResetFieldsStrategy = late, late
		s.status = &statusREST{&of}
	}
	b.stores[v.Name] = s
	return nil
}

// addEndpoints makes the endpoints of a served version.
func (b *build) addEndpoints(v *apiextensionsv1.CustomResourceDefinitionVersion) error {
	gv := b.groupVersion(v.Name)
	store := b.stores[v.Name]
	parameters := runtime.NewScheme()
	parameters.AddUnversionedTypes(gv, &metav1.ListOptions{}, &metav1.GetOptions{}, &metav1.DeleteOptions{})
	serializer := &serializer{b.safe, b.schemas}

	scope := handlers.RequestScope{
		Namer:                    handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !b.namespaced()},
		Serializer:               initialization.NewCodec(serializer),
		StandardSerializers:      textual(serializer.SupportedMediaTypes()),
		ParameterCodec:           runtime.NewParameterCodec(parameters),
		Creater:                  stack.Creater(creator),
		Convertor:                b.safe,
		UnsafeConvertor:          b.convertor,
		Defaulter:                defaulter{b.schemas, parameters},
		Typer:                    typer(parameters),
		TableConvertor:           store.REST,
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
		Storage:   &instances{REST: store.REST, retired: b.retired},
		BodyTypes: bodyTypes,
		Admit:     func(next admission.Interface) admission.Interface { return refuseCreate(next, b.creations) },
	}
	if err := b.add(v, main, scope, store.GetResetFields()); err != nil {
		return err
	}
	if store.status != nil {
		scope := scope
		scope.Subresource = "status"
		if err := b.add(v, &resources.Endpoint{Storage: store.status, BodyTypes: bodyTypes}, scope, b.statusResetFields()); err != nil {
			return err
		}
	}
	if store.scale != nil {
		scope := scope
		scope.Subresource = "scale"
		scope.Serializer = scaleCodecs()
		scope.StandardSerializers = nil
		scope.Kind = scaleKind
		// The columns are our own and have valid paths.
		scope.TableConvertor, _ = tableconvertor.New(scaleColumns)
		if err := b.add(v, &resources.Endpoint{Storage: scale{store.scale}}, scope, nil); err != nil {
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
	e.Discovery = discovered(b.crd, scope.Subresource)
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

// statusResetFields returns, for every version, the fields that a write of the status subresource
// does not touch.
func (b *build) statusResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, s := range b.stores {
		if s.status == nil {
			continue
		}
		maps.Copy(reset, s.status.GetResetFields())
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
	_ rest.Patcher = &statusREST{}
	_ rest.Storage = scale{}
	_ rest.Patcher = scale{}
	_ rest.Watcher = &instances{}
)
