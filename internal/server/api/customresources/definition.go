package customresources

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// definition serves one CustomResourceDefinition in one state of its spec and
// names. It does not change, but for its gates.
type definition struct {
	crd *apiextensionsv1.CustomResourceDefinition
	// endpoints are those of the served versions.
	endpoints map[place]*resources.Endpoint
	// stores are those of the served versions and of the storage version.
	stores    map[string]customresource.CustomResourceStorage
	stored    string
	convertor *convertor
	documents map[string]func() (*spec3.OpenAPI, error)
	// typeConverter knows the schemas of all versions.
	typeConverter managedfields.TypeConverter

	// requests counts the running requests; leave ends one.
	requests *gate
	leave    func()
	// creations counts the creations about to be stored.
	creations *gate
	// retired ends when the definition has been replaced.
	retired context.Context
	retire  context.CancelFunc
}

// place is where an endpoint stands in a definition.
type place struct{ version, subresource string }

// serves reports whether the definition as it is now is what d was built from.
func (d *definition) serves(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return d.crd.UID == crd.UID &&
		apiequality.Semantic.DeepEqual(&d.crd.Spec, &crd.Spec) &&
		apiequality.Semantic.DeepEqual(&d.crd.Status.AcceptedNames, &crd.Status.AcceptedNames)
}

// close gives up the stores. Requests must have ended.
func (d *definition) close() {
	for _, s := range d.stores {
		// The stores of subresources are the same.
		s.CustomResource.DestroyFunc()
	}
}

// build holds what the versions of a definition share while it is built.
type build struct {
	*definition
	server      *Server
	schemas     *schemas
	safe        runtime.ObjectConvertor
	equivalents runtime.EquivalentResourceRegistry
	// replicas says where versions with a scale subresource have the number.
	replicas managedfields.ResourcePathMappings
}

// define builds what serves a definition. It opens nothing. Previous, which may
// be nil, is what it replaces.
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
		crd:       crd,
		endpoints: map[place]*resources.Endpoint{},
		stores:    map[string]customresource.CustomResourceStorage{},
		stored:    stored,
		documents: map[string]func() (*spec3.OpenAPI, error){},
		requests:  newGate(),
		creations: newGate(),
	}
	if previous != nil && previous.crd.UID == crd.UID {
		// Creations that run in the old definition count.
		d.creations = previous.creations
	}
	d.leave = d.requests.leave
	d.retired, d.retire = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			d.retire()
		}
	}()
	d.typeConverter = resources.NewTypeConverter(d.newTypeConverter)
	for _, v := range crd.Spec.Versions {
		d.documents[v.Name] = sync.OnceValues(func() (*spec3.OpenAPI, error) { return document(crd, v.Name) })
	}
	b := &build{
		definition:  d,
		server:      s,
		equivalents: runtime.NewEquivalentResourceRegistry(),
		replicas:    managedfields.ResourcePathMappings{},
	}
	if b.schemas, err = newSchemas(crd); err != nil {
		return nil, err
	}
	if d.convertor, err = newConvertor(crd, &s.options); err != nil {
		return nil, err
	}
	b.safe = safe{d.convertor}
	b.registerKinds()
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if !v.Served && !v.Storage {
			continue
		}
		if err := b.addStore(v); err != nil {
			return nil, fmt.Errorf("version %s: %w", v.Name, err)
		}
	}
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Served && !s.builtin(b.groupVersion(v.Name)) {
			if err := b.addEndpoints(v); err != nil {
				return nil, fmt.Errorf("version %s: %w", v.Name, err)
			}
		}
	}
	return d, nil
}

// registerKinds fills the registry of equivalent resources, one for each
// definition: versions can go away, and the registry never forgets.
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
