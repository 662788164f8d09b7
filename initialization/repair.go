package initialization

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// errMoved means that it is not the initializer's turn any more.
var errMoved = errors.New("it is another initializer's turn")

// remove removes an initializer from an object if it is the initializer's turn. The name "" means a list
// without entries. The server itself writes, without admission and validation (S11.49). remove returns the new
// object, nil if there was nothing to remove.
func (s *store) remove(ctx context.Context, key string, uid types.UID, name string) (runtime.Object, error) {
	out := s.newObject()
	err := s.Interface.GuaranteedUpdate(ctx, key, out, false, &apistorage.Preconditions{UID: &uid},
		func(current runtime.Object, _ apistorage.ResponseMeta) (runtime.Object, *uint64, error) {
			field, err := initializers.Get(current)
			if err != nil {
				return nil, nil, err
			}
			if field == nil || field.Result != nil {
				return nil, nil, errMoved
			}
			if i := slices.Index(s.leading(field), initializers.Initializer{Name: name}); i >= 0 {
				m, err := meta.Accessor(current)
				if err != nil {
					return nil, nil, err
				}
				if held(m, field) {
					return nil, nil, errMoved
				}
				field.Pending = slices.Delete(field.Pending, i, i+1)
				unclaim(m, field, name)
			} else if name != "" || len(field.Pending) > 0 {
				return nil, nil, errMoved
			}
			if field.Empty() {
				field = nil
			}
			initializers.Set(current, field)
			return current, nil, nil
		}, nil)
	switch {
	case errors.Is(err, errMoved), apistorage.IsNotFound(err), apistorage.IsInvalidObj(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return out, nil
}

// repair changes an object that has been uninitialized for longer than the longest life of a server that
// followed it: the first pending initializer is removed, unless it must act; an object whose initialization
// failed is deleted. repair is best effort: an object that cannot be repaired is served as it was read (S11.50
// to S11.53). It returns only the error of the second read of an object that was deleted.
func (s *store) repair(ctx context.Context, key string, opts apistorage.GetOptions, out runtime.Object) error {
	m, err := meta.Accessor(out)
	if err != nil {
		return nil
	}
	field, err := initializers.Get(out)
	if err != nil || field == nil {
		return nil
	}
	if until := s.heldUntil(m, field); !until.IsZero() && s.d.Clock.Since(until) >= repairMargin {
		if err := s.giveUp(ctx, key, m.GetUID()); err != nil {
			return nil
		}
		return s.reread(ctx, key, opts, out)
	}
	if s.resume(key, out, m, field) {
		return s.reread(ctx, key, opts, out)
	}
	if held(m, field) {
		return nil
	}
	if age := s.d.Clock.Since(m.GetCreationTimestamp().Time); age < s.d.RepairAfter+repairMargin {
		return nil
	}
	name := ""
	if len(field.Pending) > 0 {
		name = field.Pending[0].Name
		if s.d.MustAct(name) {
			return nil
		}
	}
	repaired, err := s.remove(ctx, key, m.GetUID(), name)
	if err != nil || repaired == nil {
		return nil
	}
	s.d.Observe(Event{Kind: Repaired, Resource: s.resource, Initializer: name})
	s.tracker.observe(repaired)
	return assign(out, repaired)
}

// reread reads the currently stored object into out.
func (s *store) reread(ctx context.Context, key string, opts apistorage.GetOptions, out runtime.Object) error {
	fresh := s.newObject()
	if err := s.Interface.Get(ctx, key, apistorage.GetOptions{IgnoreNotFound: opts.IgnoreNotFound}, fresh); err != nil {
		return err
	}
	return assign(out, fresh)
}
