package server

import (
	"errors"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/typechecking"
)

// newTypeChecking returns what writes status.typeChecking of policies (D61).
func newTypeChecking(client discovery.DiscoveryInterface, schemas *described) *typechecking.Controller {
	return typechecking.New(typechecking.Options{
		Schemas: schemas,
		Kinds:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)),
		Builtin: legacyscheme.Scheme.IsGroupRegistered,
	})
}

// newDescribed returns what finds the OpenAPI schemas of all kinds.
func newDescribed(client discovery.DiscoveryInterface, models *openapi.Models) *described {
	return &described{
		builtin: models, custom: &resolver.ClientDiscoveryResolver{Discovery: client},
		known: map[schema.GroupVersionKind]weak.Pointer[spec.Schema]{},
	}
}

// described finds the OpenAPI schemas of all kinds. Those of built-in kinds are not read from the
// server's documents, which are long.
type described struct {
	builtin, custom resolver.SchemaResolver

	mu sync.Mutex
	// known are the schemas of built-in kinds that were found, as long as they are in
	// memory: many policies are about few kinds, and come in crowds.
	known map[schema.GroupVersionKind]weak.Pointer[spec.Schema]
}

// ResolveSchema implements resolver.SchemaResolver. The schema must not be changed.
func (s *described) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	s.mu.Lock()
	known := s.known[kind].Value()
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := s.builtin.ResolveSchema(kind)
	switch {
	case errors.Is(err, resolver.ErrSchemaNotFound):
		return s.custom.ResolveSchema(kind)
	case err == nil:
		s.mu.Lock()
		s.known[kind] = weak.Make(found)
		s.mu.Unlock()
	}
	return found, err
}
