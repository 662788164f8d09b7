package customresources

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// definition serves one CustomResourceDefinition in one state of its spec and names. It is
// immutable, except for its gates and for the parts that are built on first use.
type definition struct {
	server *Server
	// crd has packed schemas.
	crd *apiextensionsv1.CustomResourceDefinition
	// shown are the places of the endpoints of the served versions.
	shown     map[place]bool
	stored    string
	convertor *convertor
	schemas   *schemas
	// whole is crd with its schemas.
	whole *late[*apiextensionsv1.CustomResourceDefinition]
	// strategies are the strategies of the versions that have a store.
	strategies map[string]*late[strategies]
	// typeConverter has the schemas of all versions.
	typeConverter managedfields.TypeConverter

	// made are the parts, once the first request has needed them. building is held while they are
	// built; closed means that the parts must not be built any more.
	made     atomic.Pointer[parts]
	building sync.Mutex
	closed   bool

	// requests counts the running requests; leave ends one.
	requests *gate
	leave    func()
	// creations counts the creations about to be stored.
	creations *gate
	// retired ends when the definition has been replaced.
	retired context.Context
	retire  context.CancelFunc
}

// parts serve the requests of a definition.
type parts struct {
	// endpoints are the endpoints of the served versions.
	endpoints map[place]*resources.Endpoint
	// stores are the stores of the served versions and of the storage version.
	stores map[string]versionStore
}

// versionStore is the store of one version, with its subresources; a missing subresource is nil.
type versionStore struct {
	*customresource.REST
	status *statusREST
	scale  *customresource.ScaleREST
}

// place is the position of an endpoint in a definition.
type place struct{ version, subresource string }

// serves reports whether crd has the spec and the accepted names that d was built from.
func (d *definition) serves(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return d.crd.UID == crd.UID &&
		apiequality.Semantic.DeepEqual(&d.crd.Spec, &crd.Spec) &&
		apiequality.Semantic.DeepEqual(&d.crd.Status.AcceptedNames, &crd.Status.AcceptedNames)
}

// close gives up the stores. Requests must have ended.
func (d *definition) close() {
	d.building.Lock()
	defer d.building.Unlock()
	d.closed = true
	if made := d.made.Load(); made != nil {
		for _, s := range made.stores {
			// The stores of subresources are the same.
			s.DestroyFunc()
		}
	}
}

// errClosed means that a definition was replaced or deleted before it was used.
var errClosed = errors.New("the definition changed a moment ago")

// open returns the parts, which the first call builds. It opens no store.
func (d *definition) open() (*parts, error) {
	if made := d.made.Load(); made != nil {
		return made, nil
	}
	d.building.Lock()
	defer d.building.Unlock()
	if made := d.made.Load(); made != nil {
		return made, nil
	}
	if d.closed {
		return nil, errClosed
	}
	made, err := d.build()
	if err != nil {
		return nil, fmt.Errorf("building CustomResourceDefinition %q: %w", d.crd.Name, err)
	}
	d.made.Store(made)
	return made, nil
}

// build holds the data that the versions of a definition share while its parts are built.
type build struct {
	*definition
	*parts
	safe        runtime.ObjectConvertor
	equivalents runtime.EquivalentResourceRegistry
	// replicas has the path of the number of replicas, for versions with a scale subresource.
	replicas managedfields.ResourcePathMappings
}

// define makes the definition that serves crd. It opens no store. It compiles the schemas only to
// check them, and skips the check if they are known to be good. previous, which may be nil, is the
// definition that the new one replaces.
func (s *Server) define(crd *apiextensionsv1.CustomResourceDefinition, previous *definition) (_ *definition, err error) {
	names := crd.Status.AcceptedNames
	if names.Plural == "" || names.Singular == "" || names.Kind == "" || names.ListKind == "" {
		return nil, errors.New("status.acceptedNames is incomplete")
	}
	stored, err := apihelpers.GetCRDStorageVersion(crd)
	if err != nil {
		return nil, err
	}
	d := &definition{
		server:     s,
		crd:        crd,
		shown:      map[place]bool{},
		stored:     stored,
		strategies: map[string]*late[strategies]{},
		requests:   newGate(),
		creations:  newGate(),
	}
	if previous != nil && previous.crd.UID == crd.UID {
		// Creations that run in the old definition count.
		d.creations = previous.creations
	}
	if d.convertor, err = newConvertor(crd, &s.options); err != nil {
		return nil, err
	}
	d.whole = newLate(&s.keeper, minPatience, func() (*apiextensionsv1.CustomResourceDefinition, error) { return unpacked(crd) })
	d.schemas = newSchemas(crd, &s.keeper, d.whole.get)
	if !s.trusted(crd) {
		if _, err := d.schemas.byVersion.get(); err != nil {
			return nil, err
		}
	}
	patience := requestPatience
	if d.convertor.webhook != nil {
		patience = conversionPatience
	}
	d.typeConverter = resources.NewTypeConverter(newLate(&s.keeper, patience, d.newTypeConverter).get)
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if !v.Served && !v.Storage {
			continue
		}
		d.strategies[v.Name] = newLate(&s.keeper, minPatience, func() (strategies, error) { return d.newStrategies(i) })
		if !v.Served || s.builtin(d.groupVersion(v.Name)) {
			continue
		}
		d.shown[place{version: v.Name}] = true
		if v.Subresources != nil {
			d.shown[place{v.Name, "status"}] = v.Subresources.Status != nil
			d.shown[place{v.Name, "scale"}] = v.Subresources.Scale != nil
		}
	}
	d.leave = d.requests.leave
	d.retired, d.retire = context.WithCancel(context.Background())
	return d, nil
}

// trusted reports whether the schemas of a CRD are known to be good: a server has established the
// CRD with these schemas, and no server has reported an error in them.
func (s *Server) trusted(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return established(crd) && !crd.Spec.PreserveUnknownFields &&
		apihelpers.FindCRDCondition(crd, apiextensionsv1.NonStructuralSchema) == nil
}

// build builds the parts.
func (d *definition) build() (*parts, error) {
	b := &build{
		definition:  d,
		parts:       &parts{endpoints: map[place]*resources.Endpoint{}, stores: map[string]versionStore{}},
		safe:        safe{d.convertor},
		equivalents: runtime.NewEquivalentResourceRegistry(),
		replicas:    managedfields.ResourcePathMappings{},
	}
	b.registerKinds()
	for i := range d.crd.Spec.Versions {
		v := &d.crd.Spec.Versions[i]
		if d.strategies[v.Name] == nil {
			continue
		}
		if err := b.addStore(v); err != nil {
			return nil, fmt.Errorf("version %s: %w", v.Name, err)
		}
	}
	for i := range d.crd.Spec.Versions {
		if v := &d.crd.Spec.Versions[i]; d.shown[place{version: v.Name}] {
			if err := b.addEndpoints(v); err != nil {
				return nil, fmt.Errorf("version %s: %w", v.Name, err)
			}
		}
	}
	return b.parts, nil
}

// registerKinds fills the registry of equivalent resources. Each definition has a registry of its
// own, because versions can be removed and a registry never drops them.
func (b *build) registerKinds() {
	for _, v := range b.crd.Spec.Versions {
		gv := b.groupVersion(v.Name)
		resource := gv.WithResource(b.crd.Status.AcceptedNames.Plural)
		kind := gv.WithKind(b.crd.Status.AcceptedNames.Kind)
		b.equivalents.RegisterKindFor(resource, "", kind)
		b.replicas[gv.String()] = nil
		if v.Subresources == nil {
			continue
		}
		if v.Subresources.Status != nil {
			b.equivalents.RegisterKindFor(resource, "status", kind)
		}
		if v.Subresources.Scale != nil {
			b.equivalents.RegisterKindFor(resource, "scale", scaleKind)
			var path fieldpath.Path
			for name := range strings.SplitSeq(strings.TrimPrefix(v.Subresources.Scale.SpecReplicasPath, "."), ".") {
				path = append(path, fieldpath.PathElement{FieldName: &name})
			}
			b.replicas[gv.String()] = path
		}
	}
}

func (d *definition) groupVersion(version string) schema.GroupVersion {
	return schema.GroupVersion{Group: d.crd.Spec.Group, Version: version}
}

func (d *definition) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: d.crd.Spec.Group, Resource: d.crd.Status.AcceptedNames.Plural}
}

func (d *definition) namespaced() bool { return d.crd.Spec.Scope == apiextensionsv1.NamespaceScoped }
