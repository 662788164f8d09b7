package initialization

import (
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// tracker follows the uninitialized objects of one resource that have a waiting creator, or initializers with a
// timer.
type tracker struct {
	store *store
	root  string

	// mu is never held while storage is called.
	mu struct {
		sync.Mutex
		entries map[types.UID]*entry
		// watching is true while the goroutine of watch runs; seen is the resourceVersion up to
		// which the goroutine has seen all events.
		watching bool
		seen     uint64
		// stuck are objects that are not followed, at most maxTimers: their initializer's policy was Fail when
		// its time had passed. looking is true while a timer of lookAtStuck runs.
		stuck   map[types.UID]stuck
		looking bool
	}
}

// entry is one uninitialized object.
type entry struct {
	tracker *tracker
	key     string
	uid     types.UID
	name    string

	// The tracker's lock guards the fields that follow. version is the version of the newest recorded state;
	// turns has the initializers whose turn it is.
	version uint64
	turns   []turn
	timer   clock.Timer
	armed   bool
	// waited is true while a creator waits, busy while expire handles late initializers. Either
	// keeps the entry.
	waited bool
	busy   bool
	ended  bool
	// until is the time when the server gives up an object that is held; zero for an object that is not held.
	until time.Time

	// done is closed when the creator may continue: final and err are its result.
	done     chan struct{}
	answered sync.Once
	final    runtime.Object
	err      error
}

// turn is an initializer that may act now.
type turn struct {
	name  string
	since time.Time
	// late is set once its time has passed.
	late bool
}

// errDeleted returns the error of S11.25 (c).
func errDeleted() error {
	return apierrors.NewInternalError(errors.New("object deleted while waiting for creation"))
}

// follow records an object that was just written, and follows it if a creator waits for it or it gets a timer.
// Otherwise it returns nil.
func (t *tracker) follow(key string, obj runtime.Object, field *initializers.Initializers, waited bool) *entry {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	version, err := t.store.Versioner().ObjectResourceVersion(obj)
	if err != nil {
		return nil
	}
	d := t.store.d
	t.mu.Lock()
	e, known := t.mu.entries[m.GetUID()]
	if known {
		defer t.mu.Unlock()
		t.take(e, version, field, t.store.heldUntil(m, field))
		return e
	}
	e = &entry{tracker: t, key: key, uid: m.GetUID(), name: m.GetName(), waited: waited, done: make(chan struct{})}
	if t.mu.entries == nil {
		t.mu.entries = map[types.UID]*entry{}
	}
	t.mu.entries[e.uid] = e
	d.Observe(Event{Kind: Followed, Resource: t.store.resource})
	if t.take(e, version, field, t.store.heldUntil(m, field)); e.ended {
		t.mu.Unlock()
		return nil
	}
	start := !t.mu.watching
	missed := !start && t.mu.seen > version
	if start {
		t.mu.watching, t.mu.seen = true, version
	}
	t.mu.Unlock()
	if start {
		d.spawn(t.watch)
	}
	if missed {
		// The watch had passed this version before the entry existed.
		d.spawn(func() { t.check(d.ctx, e) })
	}
	return e
}

// note records the result of a write of this server, which the watch would deliver a little later. A nil field
// means that the object is initialized.
func (t *tracker) note(obj runtime.Object, field *initializers.Initializers) {
	uid, err := uidOf(obj)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.mu.entries[uid]; ok {
		t.update(e, obj, field)
	}
}

// update records a state of an object. The lock is held.
func (t *tracker) update(e *entry, obj runtime.Object, field *initializers.Initializers) {
	version, err := t.store.Versioner().ObjectResourceVersion(obj)
	var m metav1.Object
	if err == nil {
		m, err = meta.Accessor(obj)
	}
	switch {
	case err != nil:
		t.end(e, nil, apierrors.NewInternalError(err))
	case version <= e.version:
	case field == nil:
		t.store.d.Observe(Event{Kind: Initialized, Resource: t.store.resource, Object: obj})
		t.take(e, version, &initializers.Initializers{}, time.Time{})
		if !e.waited {
			t.end(e, nil, nil)
		} else if cached, ok := obj.(runtime.CacheableObject); ok {
			// The watch cache sends the same object to several watchers.
			t.end(e, cached.GetObject(), nil)
		} else {
			t.end(e, obj.DeepCopyObject(), nil)
		}
	case field.Result != nil && !held(m, field):
		t.end(e, nil, t.store.rejection(field))
	default:
		t.take(e, version, field, t.store.heldUntil(m, field))
	}
}

// take notes the initializers whose turn it is now, and starts their time. The lock is held.
func (t *tracker) take(e *entry, version uint64, field *initializers.Initializers, until time.Time) {
	if version <= e.version {
		return
	}
	e.version = version
	d := t.store.d
	if !until.IsZero() {
		t.hold(e, field, until)
		return
	}
	now := d.Clock.Now()
	leading := t.store.leading(field)
	for _, past := range e.turns {
		if !past.late && !slices.Contains(leading, initializers.Initializer{Name: past.name}) {
			d.Observe(Event{Kind: Acted, Resource: t.store.resource, Initializer: past.name, After: now.Sub(past.since)})
		}
	}
	turns := make([]turn, len(leading))
	for i, l := range leading {
		turns[i] = turn{name: l.Name, since: now}
		for _, past := range e.turns {
			if past.name == l.Name {
				turns[i] = past
			}
		}
	}
	e.turns = turns
	t.schedule(e)
}

// hold notes that an object waits for initializers to release it. Its creator does not
// wait for that (S11.58). The lock is held.
func (t *tracker) hold(e *entry, field *initializers.Initializers, until time.Time) {
	e.turns = nil
	if e.until.IsZero() {
		e.until = until
	}
	if field.Result != nil {
		e.answer(nil, t.store.rejection(field))
	} else {
		e.answer(nil, errDeleted())
	}
	t.schedule(e)
}

// follows reports whether an object is followed.
func (t *tracker) follows(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.mu.entries[uid]
	return ok
}

// schedule sets the timer to when the next initializer is late. It stops following an object if
// no creator waits for it and no timer runs. The lock is held.
func (t *tracker) schedule(e *entry) {
	t.disarm(e)
	if e.ended {
		return
	}
	d := t.store.d
	due := e.until
	for _, turn := range e.turns {
		if at := turn.since.Add(d.Timeout); !turn.late && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	if !due.IsZero() {
		t.arm(e, due.Sub(d.Clock.Now()))
	}
	if !e.armed && !e.waited && !e.busy {
		t.drop(e)
	}
}

// arm starts the timer, unless too many are running. The lock is held.
func (t *tracker) arm(e *entry, after time.Duration) {
	d := t.store.d
	if d.timers.Add(1) > int64(d.maxTimers) {
		d.timers.Add(-1)
		return
	}
	e.armed = true
	if after <= 0 {
		d.spawn(func() { t.expire(e) })
		return
	}
	e.timer = d.Clock.AfterFunc(after, func() { d.spawn(func() { t.expire(e) }) })
}

func (t *tracker) disarm(e *entry) {
	if !e.armed {
		return
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.armed, e.timer = false, nil
	t.store.d.timers.Add(-1)
}

// end stops following an object. The lock is held.
func (t *tracker) end(e *entry, final runtime.Object, err error) {
	if e.ended {
		return
	}
	e.ended = true
	t.disarm(e)
	delete(t.mu.entries, e.uid)
	t.store.d.Observe(Event{Kind: Left, Resource: t.store.resource})
	e.answer(final, err)
}

// drop stops following an object that still waits. The lock is held.
func (t *tracker) drop(e *entry) {
	if !e.ended {
		t.remember(e)
	}
	t.end(e, nil, nil)
}

// answer ends the creator's wait, if a creator waits. The object may still be followed.
func (e *entry) answer(final runtime.Object, err error) {
	e.answered.Do(func() {
		e.final, e.err = final, err
		close(e.done)
	})
}

// leave is called by a creator that no longer waits. A timer of the object continues.
func (t *tracker) leave(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.waited = false
	if !e.armed && !e.busy {
		t.drop(e)
	}
}

// turnOf returns the names of the initializers whose turn it is.
func (t *tracker) turnOf(e *entry) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, len(e.turns))
	for i, turn := range e.turns {
		names[i] = turn.name
	}
	return names
}

func uidOf(obj runtime.Object) (types.UID, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", err
	}
	return m.GetUID(), nil
}
