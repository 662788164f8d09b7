package schemas

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// Applied has the schemas of all kinds that the server serves, for mutating policies. Server-side
// apply uses the same schemas, so that a kind has one as soon as it is served (S18.22, D51). Before
// Serve it has no schemas.
type Applied struct{ served atomic.Pointer[served] }

type served struct {
	builtin map[schema.GroupVersionKind]managedfields.TypeConverter
	custom  *customresources.Server
}

// Serve sets the kinds of endpoints, and the custom resources.
func (s *Applied) Serve(endpoints []*resources.Endpoint, custom *customresources.Server) {
	builtin := make(map[schema.GroupVersionKind]managedfields.TypeConverter, len(endpoints))
	for _, e := range endpoints {
		// Upstream looks for a schema in the document of the kind's own group and version. Scale,
		// for example, is not in that document (S18.10).
		if e.TypeConverter != nil && e.Kind.GroupVersion() == e.Scope.Resource.GroupVersion() {
			builtin[e.Kind] = e.TypeConverter
		}
	}
	s.served.Store(&served{builtin, custom})
}

// TypeConverter implements admission.Schemas.
func (s *Applied) TypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	kinds := s.served.Load()
	if kinds == nil {
		return nil
	}
	if converter := kinds.builtin[kind]; converter != nil {
		return converter
	}
	return kinds.custom.TypeConverter(kind)
}
