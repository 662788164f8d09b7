package initialization

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// Options control the treatment of objects whose initializers do not act. The zero value of every field means
// its default.
type Options struct {
	// Timeout limits the turn of an initializer; 0 means 5 s (S11.44).
	Timeout time.Duration
	// RepairAfter is the age at which an uninitialized object is repaired when a client reads it;
	// 0 means 10 min (S11.50).
	RepairAfter time.Duration
	// ReleaseTimeout limits the time that a deleted object is kept for initializers that have to release
	// something first; 0 means an hour (S11.59).
	ReleaseTimeout time.Duration
	// MustAct reports whether an initializer's failure policy is Fail. Nil means that the policy
	// of none is Fail (S11.47).
	MustAct func(initializer string) bool
	// Parallel reports whether an initializer may act at the same time as its
	// neighbours. Nil means that none may.
	Parallel func(initializer string) bool
	// Discarded is called with objects that were deleted because their initialization
	// failed, to do what their kind does after a deletion. Nil means nothing is called.
	Discarded func(schema.GroupResource, runtime.Object)
	// Observe is called with each event. It must not block, and must not call the Decorator. Nil
	// means that nothing is called.
	Observe func(Event)
	// Clock is replaced by tests.
	Clock clock.WithDelayedExecution
	// maxTimers is the largest number of objects with a timer for their timeouts. Further objects are left to
	// the repair (S11.48). It is 10,000 except in tests.
	maxTimers int
}

// repairMargin is added to RepairAfter for differences between clocks (S11.51).
const repairMargin = 30 * time.Second

// Event is something that happened to an uninitialized object, for metrics.
type Event struct {
	Kind     EventKind
	Resource schema.GroupResource
	// Initializer is the initializer that acted, or did not act. For Rejected it is the quoted name,
	// or the quoted names joined by "or" if parallel initializers had their turn.
	Initializer string
	// After is the duration of the initializer's turn.
	After time.Duration
	// Finalizer is set for Abandoned.
	Finalizer string
	// Object is set for Abandoned, Initialized, Rejected and SeenRejected; it must not be changed.
	Object runtime.Object
	// Err is set for Rejected and SeenRejected. It is the error for a creator that waits.
	Err error
}

// EventKind is the kind of an Event.
type EventKind int

const (
	// Acted: the initializer is no longer pending, because it removed itself or another client
	// that may change the list removed it.
	Acted EventKind = iota
	// TimedOutIgnored: the initializer was removed because it did not act in time.
	TimedOutIgnored
	// TimedOutFailed: the initializer did not act in time and its policy is Fail.
	TimedOutFailed
	// Repaired: the initializer was removed when a client read the object.
	Repaired
	// Initialized: an object that this server follows is initialized.
	Initialized
	// Rejected: the initializer set a result through this server.
	Rejected
	// SeenRejected: the watch cache of this server has an object with a result, which may have been
	// set through another server. There may be several such events for one object.
	SeenRejected
	// Discarded: the object was deleted because its initialization failed, or will be deleted for
	// that reason when its initializers have released it. There is one such event for each object.
	Discarded
	// Abandoned: the server removed the initializer's finalizer from an object that was held for
	// it, since the initializer did not do so in time.
	Abandoned
	// WaitBegan and WaitEnded count creators.
	WaitBegan
	WaitEnded
	// Followed and Left count the objects that this server follows.
	Followed
	Left
)

// Decorator puts the rules in front of stores. It implements storage.Decorator
// of package storage and is safe for concurrent use.
type Decorator struct {
	Options
	timers atomic.Int64
	// started is the time of New.
	started time.Time
	// stores are the stores of the resources, by schema.GroupResource.
	stores sync.Map
	ctx    context.Context
	cancel context.CancelFunc
	// released is closed when creators must not wait any longer.
	released context.Context
	release  context.CancelFunc

	// work counts the goroutines of all stores. It grows only while mu is held
	// and closed is false.
	work sync.WaitGroup
	mu   struct {
		sync.Mutex
		closed bool
	}
}

// New returns a Decorator. Close must be called before the stores are closed.
func New(o Options) *Decorator {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.RepairAfter = cmp.Or(o.RepairAfter, 10*time.Minute)
	o.ReleaseTimeout = cmp.Or(o.ReleaseTimeout, time.Hour)
	o.maxTimers = cmp.Or(o.maxTimers, 10_000)
	none := func(string) bool { return false }
	if o.MustAct == nil {
		o.MustAct = none
	}
	if o.Parallel == nil {
		o.Parallel = none
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.Discarded == nil {
		o.Discarded = func(schema.GroupResource, runtime.Object) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	d := &Decorator{Options: o, started: o.Clock.Now()}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.released, d.release = context.WithCancel(d.ctx)
	return d
}

// Release ends the waiting of all creators, now and later. A server calls it when it is about to
// end. The objects of these creators stay uninitialized. It may be called several times.
func (d *Decorator) Release() { d.release() }

// Close ends all waiting, and returns when all goroutines have ended. Timers that fire later do nothing.
func (d *Decorator) Close() {
	d.mu.Lock()
	d.mu.closed = true
	d.mu.Unlock()
	d.cancel()
	d.work.Wait()
}

// spawn runs f in a goroutine that Close waits for. After Close it does nothing.
func (d *Decorator) spawn(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.mu.closed {
		d.work.Go(f)
	}
}

// Attributes implements storage.Decorator.
func (d *Decorator) Attributes(resource schema.GroupResource, get apistorage.AttrFunc) apistorage.AttrFunc {
	return withInitialized(get, func(obj runtime.Object) {
		if s, ok := d.stores.Load(resource); ok {
			s.(*store).notice(obj)
		}
	})
}

// Store implements storage.Decorator.
func (d *Decorator) Store(resource schema.GroupResource, root string, newObject func() runtime.Object, inner apistorage.Interface) apistorage.Interface {
	s := &store{Interface: inner, d: d, resource: resource, newObject: newObject}
	s.tracker = &tracker{store: s, root: root}
	d.stores.Store(resource, s)
	return s
}

// store wraps a resource's store with the rules.
type store struct {
	apistorage.Interface
	d         *Decorator
	resource  schema.GroupResource
	newObject func() runtime.Object
	tracker   *tracker
}

func (s *store) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	return s.Interface.Watch(ctx, key, visible(ctx, opts))
}

func (s *store) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	// A list without selectors is filtered after the read: a selector would keep the list from
	// the watch cache's fast path, and would hide how many items remain. A page may then have
	// fewer items than its limit, which clients expect of any page.
	if l, ok := ctx.Value(listingKey{}).(*Listing); ok {
		if done, err := l.list(ctx, s.Interface, key, opts, list); done || err != nil {
			return err
		}
	}
	if r := readerOf(ctx); r != nil && r.Hide && opts.Predicate.Empty() {
		if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
			return err
		}
		return removeUninitialized(list)
	}
	return s.Interface.GetList(ctx, key, visible(ctx, opts), list)
}

// Create stores the object and starts the clock of its first initializer. A Creation in the
// context gets the object to wait for.
func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if initializers.Has(obj) {
		if err := s.tend(nil, obj); err != nil {
			return apistorage.NewInternalError(err)
		}
	}
	if err := s.Interface.Create(ctx, key, obj, out, ttl); err != nil {
		return err
	}
	if !initializers.Has(out) {
		return nil
	}
	field, err := initializers.Get(out)
	if err != nil {
		return apistorage.NewInternalError(err)
	}
	c, w := creation(ctx), writeOf(ctx)
	w.note(out)
	if field.Result != nil {
		s.discard(key, out)
		if c != nil {
			c.failed = failure(field.Result)
		}
		if w.waits() {
			return failure(field.Result)
		}
		return nil
	}
	e := s.tracker.follow(key, out, field, c != nil || w.waits())
	if c != nil {
		c.entry = e
	}
	if w.waits() {
		defer func() { w.note(out) }()
		return w.wait(ctx, e, out)
	}
	return nil
}

// Get reads an object, and repairs it first if it has been uninitialized for too
// long.
func (s *store) Get(ctx context.Context, key string, opts apistorage.GetOptions, out runtime.Object) error {
	if err := s.Interface.Get(ctx, key, opts, out); err != nil || !initializers.Has(out) {
		return err
	}
	r := readerOf(ctx)
	if r == nil {
		return nil
	}
	if r.Repair {
		if err := s.repair(ctx, key, opts, out); err != nil {
			return err
		}
	}
	if !initializers.Has(out) || r.shows(out) {
		return nil
	}
	// A hidden object counts as absent.
	if !opts.IgnoreNotFound {
		return apistorage.NewKeyNotFoundError(key, 0)
	}
	return runtime.SetZeroValue(out)
}

// GuaranteedUpdate writes the object. An object whose initialization failed is deleted after the
// failure is stored, so that clients can see it (S11.40).
func (s *store) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, tryUpdate apistorage.UpdateFunc, cached runtime.Object,
) error {
	var before *initializers.Initializers
	observed := func(current runtime.Object, meta apistorage.ResponseMeta) (runtime.Object, *uint64, error) {
		before = nil
		if initializers.Has(current) {
			var err error
			if before, err = initializers.Get(current); err != nil {
				return nil, nil, apistorage.NewInternalError(err)
			}
		}
		next, ttl, err := tryUpdate(current, meta)
		if err == nil && writeOf(ctx).keeps() && (before != nil || initializers.Has(next)) {
			initializers.Set(next, before)
		}
		if err == nil && initializers.Has(next) {
			err = s.tend(before, next)
		}
		return next, ttl, err
	}
	if err := s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, observed, cached); err != nil {
		return err
	}
	writeOf(ctx).note(out)
	if !initializers.Has(out) {
		if before != nil {
			s.tracker.note(out, nil)
		}
		return nil
	}
	field, err := initializers.Get(out)
	if err != nil {
		return apistorage.NewInternalError(err)
	}
	m, err := meta.Accessor(out)
	if err != nil {
		return apistorage.NewInternalError(err)
	}
	if field.Result != nil && before != nil && before.Result == nil && len(before.Pending) > 0 {
		s.d.Observe(Event{Kind: Rejected, Resource: s.resource, Initializer: s.turn(before), Object: out, Err: failure(field.Result)})
		if held(m, field) {
			// The object is counted now; finish, which deletes it later, does not count.
			s.d.Observe(Event{Kind: Discarded, Resource: s.resource})
		}
	}
	switch {
	case held(m, field):
		s.tracker.follow(key, out, field, false)
	case field.Result != nil:
		s.tracker.note(out, field)
		s.discard(key, out)
	case before != nil && len(before.Paired) > 0 && ends(m):
		s.finish(key, out)
	case before == nil || !slices.Equal(s.leading(before), s.leading(field)):
		// An object that was created by an update is followed as well. An object that a server
		// followed that has ended since is followed again.
		s.tracker.follow(key, out, field, false)
	}
	return nil
}

// leading returns the initializers whose turn it is.
func (s *store) leading(field *initializers.Initializers) []initializers.Initializer {
	return initializers.Leading(field.Pending, s.d.Parallel)
}

// discardTimeout limits the deletion of an object whose initialization failed.
const discardTimeout = 10 * time.Second

// discard deletes the object regardless of its finalizers. It continues when the caller's request ends. An
// object that cannot be deleted now is deleted when a client reads it (S11.53).
func (s *store) discard(key string, obj runtime.Object) {
	deleted, err := s.deleteNow(key, obj)
	switch {
	case err != nil:
		klog.ErrorS(err, "Could not delete an object whose initialization failed", "resource", s.resource, "key", key)
	case deleted != nil:
		s.d.Discarded(s.resource, deleted)
		s.d.Observe(Event{Kind: Discarded, Resource: s.resource})
	}
}

// deleteNow deletes an object and returns its last state; nil if it is gone already.
func (s *store) deleteNow(key string, obj runtime.Object) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(s.d.ctx, discardTimeout)
	defer cancel()
	uid, err := uidOf(obj)
	if err != nil {
		return nil, err
	}
	deleted := s.newObject()
	err = s.Interface.Delete(ctx, key, deleted, &apistorage.Preconditions{UID: &uid},
		apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{})
	switch {
	case apistorage.IsNotFound(err), apistorage.IsInvalidObj(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return deleted, nil
}
