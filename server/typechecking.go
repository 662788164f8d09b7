package server

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/server/openapi"
	"github.com/gatehouse-dev/gatehouse/server/typechecking"
)

// newTypeChecking returns what writes status.typeChecking of policies (D61).
func newTypeChecking(client discovery.DiscoveryInterface, schemas described) *typechecking.Controller {
	return typechecking.New(typechecking.Options{
		Schemas: schemas,
		Kinds:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)),
		Builtin: legacyscheme.Scheme.IsGroupRegistered,
	})
}

// newDescribed returns what finds the OpenAPI schemas of all kinds.
func newDescribed(client discovery.DiscoveryInterface, models *openapi.Models) described {
	return described{builtin: models, custom: &resolver.ClientDiscoveryResolver{Discovery: client}}
}

// described finds the OpenAPI schemas of all kinds. Those of built-in kinds are not read from the
// server's documents, which are long.
type described struct {
	builtin, custom resolver.SchemaResolver
}

// ResolveSchema implements resolver.SchemaResolver.
func (s described) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	found, err := s.builtin.ResolveSchema(kind)
	if errors.Is(err, resolver.ErrSchemaNotFound) {
		return s.custom.ResolveSchema(kind)
	}
	return found, err
}
