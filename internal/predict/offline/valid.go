package offline

import (
	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
)

// prepares returns what the server does to the object of a request between the passes of admission; nil
// when that is not known.
func (w *World) prepares(kind *Kind, a apiadmission.Attributes) (catalog.Prepare, error) {
	if !w.preparing {
		return nil, nil
	}
	if d := w.Kinds.definition(kind.Kind.GroupKind()); d != nil && d.rules != nil {
		s, err := d.rules.Strategy(kind.Kind.Version)
		if err != nil {
			return nil, err
		}
		return catalog.Strategies{Create: s, Update: s}.Prepare(a), nil
	}
	strategies, err := catalog.Builtin(a.GetResource())
	if err != nil {
		return nil, err
	}
	return strategies.Prepare(a), nil
}

// rules returns what the definition of the kind of a request says; nil when it is not known, or the request
// has objects of another kind.
func (w *World) rules(q *Request) *customresources.Rules {
	if d := w.Kinds.definition(q.Kind.Kind.GroupKind()); w.preparing && d != nil && q.Subresource == "" {
		return d.rules
	}
	return nil
}

// prepare has plans prepare objects. Clusters allow privileged containers; a server in this process
// may have decided before.
func (w *World) prepare() {
	_ = catalog.AllowPrivileged(true)
	w.preparing = true
}
