package server

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// schemas has the schemas of all kinds that the server serves, for mutating policies. They
// are those of server-side apply, so that a kind has one as soon as it is served (S18.22,
// D51). It knows none before serve.
type schemas struct{ served atomic.Pointer[servedSchemas] }

type servedSchemas struct {
	builtin map[schema.GroupVersionKind]managedfields.TypeConverter
	custom  *customresources.Server
}

// serve makes the kinds of endpoints known, and those that users define.
func (s *schemas) serve(endpoints []*resources.Endpoint, custom *customresources.Server) {
	builtin := make(map[schema.GroupVersionKind]managedfields.TypeConverter, len(endpoints))
	for _, e := range endpoints {
		// Upstream looks for a schema where the group and version of the kind are served,
		// and Scale, for one, is not served there (S18.10).
		if e.TypeConverter != nil && e.Kind.GroupVersion() == e.Scope.Resource.GroupVersion() {
			builtin[e.Kind] = e.TypeConverter
		}
	}
	s.served.Store(&servedSchemas{builtin, custom})
}

// TypeConverter implements admission.Schemas.
func (s *schemas) TypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	served := s.served.Load()
	if served == nil {
		return nil
	}
	if converter := served.builtin[kind]; converter != nil {
		return converter
	}
	return served.custom.TypeConverter(kind)
}
