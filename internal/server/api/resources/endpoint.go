package resources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/deprecation"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/stack"
)

// Endpoint is one resource or subresource in one served version.
type Endpoint struct {
	// Discovery is the resource as discovery shows it. Name is the path, such
	// as "deployments" or "deployments/scale".
	Discovery metav1.APIResource
	// Kind is the kind of the objects at this endpoint; for "deployments/scale" it is Scale.
	Kind schema.GroupVersionKind
	// Storage implements the verbs by its interfaces.
	Storage rest.Storage
	// Scope reads and writes the objects.
	Scope *handlers.RequestScope
	// TypeConverter has the schema of Kind. It is nil for custom resources, and where Kind is the
	// kind of the options of CONNECT, which have no schema.
	TypeConverter managedfields.TypeConverter
	// Bind, if not nil, returns the scope for one request, whose context it may use.
	Bind func(context.Context) *handlers.RequestScope
	// PatchTypes are the content types that PATCH accepts.
	PatchTypes []string
	// BodyTypes are the accepted media types of objects; nil means all media types of the scope's
	// serializer.
	BodyTypes []string
	// Warnings are sent with every response; Deprecated and RemovedRelease are for the metrics
	// of the endpoint.
	Warnings       []string
	Deprecated     bool
	RemovedRelease string
	// Custom marks endpoints of custom resources.
	Custom bool
	// Later handles fields that the emulated release does not have; nil if there are none.
	Later *Later
	// Admit decorates admission for this endpoint; nil means no decoration.
	Admit func(admission.Interface) admission.Interface
}

// Group describes one served version of an API group. Endpoints are made from it.
type Group struct {
	GroupVersion schema.GroupVersion
	// Storage maps a path, such as "pods" or "pods/status", to its storage.
	Storage map[string]rest.Storage
	// Hub is the version objects have in memory; empty means internal.
	Hub schema.GroupVersion
	// Scheme has the kinds.
	Scheme *runtime.Scheme
	// Codec is the result of initialization.NewCodec for the scheme's codecs.
	Codec runtime.NegotiatedSerializer
	// ParameterCodec reads query parameters of the group's own options.
	ParameterCodec runtime.ParameterCodec
	// TypeConverter gives server-side apply the kinds' schemas.
	TypeConverter managedfields.TypeConverter
	// Equivalents is shared by all groups of a server (S2.23).
	Equivalents runtime.EquivalentResourceRegistry
	// Authorizer is for handlers that check a second verb.
	Authorizer upstream.Authorizer
	// MaxRequestBodyBytes bounds a request's body.
	MaxRequestBodyBytes int64
	// ResetLike maps versions that storages do not have to versions of the same objects that they
	// have: server-side apply resets the same fields in both.
	ResetLike map[schema.GroupVersion]schema.GroupVersion
	// Warnings are added to the warnings of deprecated kinds, by path.
	Warnings map[string][]string
}

// BuiltinPatchTypes are the patches that built-in kinds accept.
var BuiltinPatchTypes = []string{
	"application/json-patch+json",
	"application/merge-patch+json",
	"application/strategic-merge-patch+json",
	"application/apply-patch+yaml",
}

// Endpoints builds the endpoints of a group, in order of path.
func (g *Group) Endpoints() ([]*Endpoint, error) {
	paths := slices.Sorted(maps.Keys(g.Storage))
	list := make([]*Endpoint, 0, len(paths))
	for _, path := range paths {
		e, err := g.endpoint(path)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", g.GroupVersion, path, err)
		}
		list = append(list, e)
	}
	return list, nil
}

func (g *Group) endpoint(path string) (*Endpoint, error) {
	storage := g.Storage[path]
	resource, subresource, _ := strings.Cut(path, "/")
	parent, ok := g.Storage[resource]
	if !ok {
		return nil, fmt.Errorf("%s has no storage", resource)
	}
	scoper, ok := parent.(rest.Scoper)
	if !ok {
		return nil, fmt.Errorf("storage %T does not say whether it is namespaced", parent)
	}
	kind, err := endpoints.GetResourceKind(g.GroupVersion, storage, g.Scheme)
	if err != nil {
		return nil, err
	}
	namespaced := scoper.NamespaceScoped()
	hub := g.Hub
	if hub.Empty() {
		hub = schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal}
	}
	gvr := g.GroupVersion.WithResource(resource)
	scope := &handlers.RequestScope{
		Namer:                    handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !namespaced},
		Serializer:               g.Codec,
		ParameterCodec:           g.ParameterCodec,
		Creater:                  stack.Creater(g.Scheme),
		Convertor:                g.Scheme,
		Defaulter:                g.Scheme,
		Typer:                    g.Scheme,
		UnsafeConvertor:          runtime.UnsafeObjectConvertor(g.Scheme),
		Authorizer:               g.Authorizer,
		EquivalentResourceMapper: g.Equivalents,
		Resource:                 gvr,
		Subresource:              subresource,
		Kind:                     kind,
		HubGroupVersion:          hub,
		MetaGroupVersion:         metav1.SchemeGroupVersion,
		MaxRequestBodyBytes:      g.MaxRequestBodyBytes,
	}
	scope.TableConvertor, _ = storage.(rest.TableConvertor)
	scope.AcceptsGroupVersionDelegate, _ = storage.(rest.GroupVersionAcceptor)
	scope.FieldManager, err = managedfields.NewDefaultFieldManager(g.TypeConverter, scope.UnsafeConvertor,
		scope.Defaulter, scope.Creater, kind, hub, subresource, g.resetFields(storage))
	if err != nil {
		return nil, fmt.Errorf("field manager: %w", err)
	}
	g.Equivalents.RegisterKindFor(gvr, subresource, kind)

	e := &Endpoint{
		Kind:       kind,
		Storage:    storage,
		Scope:      scope,
		PatchTypes: BuiltinPatchTypes,
		Warnings:   slices.Clone(g.Warnings[path]),
		Discovery: metav1.APIResource{
			Name:       path,
			Namespaced: namespaced,
			Kind:       kind.Kind,
			Verbs:      verbsOf(storage),
		},
	}
	if _, connects := storage.(rest.Connecter); !connects {
		e.TypeConverter = g.TypeConverter
	}
	if kind.GroupVersion() != g.GroupVersion {
		e.Discovery.Group, e.Discovery.Version = kind.Group, kind.Version
	}
	if p, ok := storage.(rest.ShortNamesProvider); ok {
		e.Discovery.ShortNames = p.ShortNames()
	}
	if p, ok := storage.(rest.CategoriesProvider); ok {
		e.Discovery.Categories = p.Categories()
	}
	if p, ok := storage.(rest.SingularNameProvider); ok && subresource == "" {
		e.Discovery.SingularName = p.GetSingularName()
	}
	if p, ok := storage.(rest.StorageVersionProvider); ok && subresource == "" && p.StorageVersion() != nil {
		if kinds, _, err := g.Scheme.ObjectKinds(storage.New()); err == nil {
			if stored, ok := p.StorageVersion().KindForGroupVersionKinds(kinds); ok {
				e.Discovery.StorageVersionHash = discovery.StorageVersionHash(stored.Group, stored.Version, stored.Kind)
			}
		}
	}
	return e, e.deprecate(g.Scheme)
}

// resetFields returns, by version, the fields of an object that server-side apply leaves out,
// because a write through the storage never stores them. Server-side apply compares managers in the
// version that each of them used, whatever the version of the request: the result must have all
// versions of the objects.
func (g *Group) resetFields(storage rest.Storage) map[fieldpath.APIVersion]fieldpath.Filter {
	var reset map[fieldpath.APIVersion]fieldpath.Filter
	switch s := storage.(type) {
	case rest.ResetFieldsStrategy:
		reset = fieldpath.NewExcludeFilterSetMap(s.GetResetFields())
	case rest.ResetFieldsFilterStrategy:
		reset = s.GetResetFieldsFilter()
	}
	for version, like := range g.ResetLike {
		if filter, ok := reset[fieldpath.APIVersion(like.String())]; ok {
			reset[fieldpath.APIVersion(version.String())] = filter
		}
	}
	return reset
}

// deprecate fills in the warnings that the kind's own lifecycle asks for (S1.8).
func (e *Endpoint) deprecate(scheme *runtime.Scheme) error {
	obj, err := scheme.New(e.Kind)
	if err != nil {
		return err
	}
	obj.GetObjectKind().SetGroupVersionKind(e.Kind)
	const major, minor = 1, 37
	if deprecation.IsDeprecated(obj, major, minor) {
		e.Deprecated = true
		e.RemovedRelease = deprecation.RemovedRelease(obj)
		e.Warnings = append(e.Warnings, deprecation.WarningMessage(obj))
	}
	return nil
}
