package initialization

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// An object whose initialization failed, or that is deleted before it is initialized, is held while
// initializers with a finalizer of their own have something to release. It has a deletionTimestamp, only
// clients that ask for uninitialized objects see it, and initializers.Paired names the initializers that hold
// it (S11.56 to S11.60).

// held reports whether an object is kept until initializers have released their allocations for it.
func held(m metav1.Object, field *initializers.Initializers) bool {
	return field != nil && len(field.Paired) > 0 && m.GetDeletionTimestamp() != nil
}

// tend keeps the finalizers of initializers in an object that is about to be written. before is the field of
// the stored object; nil for a new object.
func (s *store) tend(before *initializers.Initializers, next runtime.Object) error {
	field, err := initializers.Get(next)
	if err != nil || field == nil {
		return err
	}
	if field.Empty() {
		// The plugin does the same with objects that clients send (S11.38). This is for objects
		// that webhooks changed.
		initializers.Set(next, nil)
		return nil
	}
	pairs := field.Paired
	if before != nil {
		pairs = claimed(before.Paired, pairs)
	}
	if len(pairs) == 0 && len(field.Paired) == 0 {
		return nil
	}
	m, err := meta.Accessor(next)
	if err != nil {
		return err
	}
	failed := field.Result != nil
	finalizers := m.GetFinalizers()
	var kept []initializers.Pair
	var never []string
	for _, p := range pairs {
		switch {
		case !slices.Contains(finalizers, p.Finalizer):
		case (failed || m.GetDeletionTimestamp() != nil) && !p.Claimed && waitsFor(field, p.Name):
			never = append(never, p.Finalizer)
		default:
			kept = append(kept, p)
		}
	}
	if failed && len(kept) > 0 {
		// Finalizers that users wrote do not hold the object (S11.40).
		finalizers = without(finalizers, func(f string) bool { return !holds(kept, f) })
		if m.GetDeletionTimestamp() == nil {
			now, none := metav1.NewTime(s.d.Clock.Now()), int64(0)
			m.SetDeletionTimestamp(&now)
			m.SetDeletionGracePeriodSeconds(&none)
			if m.GetGeneration() > 0 {
				m.SetGeneration(m.GetGeneration() + 1)
			}
		}
	} else {
		finalizers = without(finalizers, func(f string) bool { return slices.Contains(never, f) && !holds(kept, f) })
	}
	m.SetFinalizers(finalizers)
	field.Paired = kept
	initializers.Set(next, field)
	return nil
}

// claimed returns the stored pairs with the claims of a write. All other changes of the pairs by
// a client are ignored (S11.55).
func claimed(stored, sent []initializers.Pair) []initializers.Pair {
	pairs := slices.Clone(stored)
	for i := range pairs {
		pairs[i].Claimed = pairs[i].Claimed ||
			slices.ContainsFunc(sent, func(p initializers.Pair) bool { return p.Name == pairs[i].Name && p.Claimed })
	}
	return pairs
}

func waitsFor(field *initializers.Initializers, name string) bool {
	return slices.Contains(field.Pending, initializers.Initializer{Name: name})
}

func holds(pairs []initializers.Pair, finalizer string) bool {
	return slices.ContainsFunc(pairs, func(p initializers.Pair) bool { return p.Finalizer == finalizer })
}

// without returns a new list without the names for which gone is true.
func without(names []string, gone func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), gone)
}

// unclaim removes from an object the finalizer of an initializer that is removed and has not
// acted (S11.57).
func unclaim(m metav1.Object, field *initializers.Initializers, name string) {
	i := slices.IndexFunc(field.Paired, func(p initializers.Pair) bool { return p.Name == name && !p.Claimed })
	if i < 0 {
		return
	}
	finalizer := field.Paired[i].Finalizer
	field.Paired = slices.Delete(field.Paired, i, i+1)
	if !holds(field.Paired, finalizer) {
		m.SetFinalizers(without(m.GetFinalizers(), func(f string) bool { return f == finalizer }))
	}
}

// ends reports whether an object is being deleted and has no finalizers or grace period left.
func ends(m metav1.Object) bool {
	grace := m.GetDeletionGracePeriodSeconds()
	return m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

// resume continues the deletion of an uninitialized object that a server left behind: it deletes
// the object, or follows it until its initializers have released it. It reports whether it
// deleted the object.
func (s *store) resume(key string, obj runtime.Object, m metav1.Object, field *initializers.Initializers) bool {
	switch {
	case held(m, field):
		s.tracker.follow(key, obj, field, false)
	case field.Result != nil:
		s.discard(key, obj)
		return true
	case ends(m):
		s.finish(key, obj)
		return true
	}
	return false
}

// notice is called with every uninitialized object that enters the watch cache. An initializer may have
// rejected the object through another server. An earlier server may have left behind an object that is held, or
// an object whose initializer has had its time (S11.68).
func (s *store) notice(obj runtime.Object) {
	if initializers.Result(obj) != nil {
		if field, err := initializers.Get(obj); err == nil {
			s.d.Observe(Event{Kind: SeenRejected, Resource: s.resource, Object: obj, Err: s.rejection(field)})
		}
	}
	m, err := meta.Accessor(obj)
	if err != nil || s.tracker.follows(m.GetUID()) {
		return
	}
	key, uid := path.Join(s.tracker.root, m.GetNamespace(), m.GetName()), m.GetUID()
	if m.GetDeletionTimestamp() == nil {
		// Timestamps have seconds.
		if m.GetCreationTimestamp().Time.Unix() < s.d.started.Unix() {
			s.tracker.inherit(key, uid, obj)
		}
		return
	}
	s.d.spawn(func() {
		obj := s.newObject()
		if err := s.Interface.Get(s.d.ctx, key, apistorage.GetOptions{}, obj); err != nil {
			return
		}
		m, err := meta.Accessor(obj)
		if err != nil || m.GetUID() != uid || m.GetDeletionTimestamp() == nil {
			return
		}
		if field, err := initializers.Get(obj); err == nil && field != nil {
			s.resume(key, obj, m, field)
		}
	})
}

// giveUp ends the deletion of an object whose initializers did not release it in time: it removes their
// finalizers, and deletes the object if no other finalizer holds it (S11.59).
func (s *store) giveUp(ctx context.Context, key string, uid types.UID) error {
	out := s.newObject()
	var abandoned []initializers.Pair
	err := s.Interface.GuaranteedUpdate(ctx, key, out, false, &apistorage.Preconditions{UID: &uid},
		func(current runtime.Object, _ apistorage.ResponseMeta) (runtime.Object, *uint64, error) {
			field, err := initializers.Get(current)
			if err != nil {
				return nil, nil, err
			}
			m, err := meta.Accessor(current)
			if err != nil {
				return nil, nil, err
			}
			if !held(m, field) {
				return nil, nil, errMoved
			}
			abandoned = field.Paired
			m.SetFinalizers(without(m.GetFinalizers(), func(f string) bool { return field.Result != nil || holds(abandoned, f) }))
			field.Paired = nil
			initializers.Set(current, field)
			return current, nil, nil
		}, nil)
	switch {
	case errors.Is(err, errMoved), apistorage.IsNotFound(err), apistorage.IsInvalidObj(err):
		return nil
	case err != nil:
		return err
	}
	for _, p := range abandoned {
		s.d.Observe(Event{Kind: Abandoned, Resource: s.resource, Initializer: p.Name, Finalizer: p.Finalizer, Object: out})
	}
	m, err := meta.Accessor(out)
	if err != nil {
		return err
	}
	if ends(m) {
		s.finish(key, out)
	}
	return nil
}

// finish deletes an object that is no longer held.
func (s *store) finish(key string, obj runtime.Object) {
	if deleted, err := s.deleteNow(key, obj); err != nil {
		klog.ErrorS(err, "Could not delete an uninitialized object that nothing holds", "resource", s.resource, "key", key)
	} else if deleted != nil {
		s.d.Discarded(s.resource, deleted)
	}
}

// heldUntil returns when the server gives up an object that is held; the zero time for an object
// that is not held.
func (s *store) heldUntil(m metav1.Object, field *initializers.Initializers) time.Time {
	if !held(m, field) {
		return time.Time{}
	}
	return m.GetDeletionTimestamp().Add(s.d.ReleaseTimeout)
}
