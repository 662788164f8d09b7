package schemas

import (
	"errors"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
)

// NewDescribed returns a Described that finds the schemas of built-in kinds in models, and the
// schemas of other kinds by a client.
func NewDescribed(client discovery.DiscoveryInterface, models *openapi.Models) *Described {
	return &Described{
		builtin: models, custom: &resolver.ClientDiscoveryResolver{Discovery: client},
		known: map[schema.GroupVersionKind]weak.Pointer[spec.Schema]{},
	}
}

// Described finds the OpenAPI schemas of all kinds. It does not read the schemas of built-in kinds
// from the server's documents, which are long.
type Described struct {
	builtin, custom resolver.SchemaResolver

	mu sync.Mutex
	// known caches the schemas of built-in kinds as long as another part keeps them in memory: many
	// policies are about few kinds, and are written at the same time.
	known map[schema.GroupVersionKind]weak.Pointer[spec.Schema]
}

// ResolveSchema implements resolver.SchemaResolver. The schema must not be changed.
func (s *Described) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
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
