package initialization

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// expire applies the failure policies of initializers that did not act in time (S11.45, S11.46).
func (t *tracker) expire(e *entry) {
	if t.expired(e) {
		t.abandon(e)
		return
	}
	late := t.overdue(e)
	for _, l := range late {
		t.expireOne(e, l.name, l.after)
	}
	if len(late) > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		e.busy = false
		t.schedule(e)
	}
}

// expired reports whether the time of the initializers that hold the object has passed. If so, it
// marks the entry as busy.
func (t *tracker) expired(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.ended || e.busy || e.until.IsZero() || t.store.d.Clock.Now().Before(e.until) {
		return false
	}
	t.disarm(e)
	e.busy = true
	return true
}

// abandon gives up an object that was not released in time (S11.59).
func (t *tracker) abandon(e *entry) {
	d := t.store.d
	err := t.store.giveUp(d.ctx, e.key, e.uid)
	if err == nil {
		t.check(d.ctx, e)
	} else if d.ctx.Err() == nil {
		klog.ErrorS(err, "Could not delete an object that was not released in time; will retry", "resource", t.store.resource, "key", e.key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e.busy = false
	if err == nil {
		// If the object still exists, finalizers of others hold it.
		t.end(e, nil, nil)
		return
	}
	e.until = d.Clock.Now().Add(d.Timeout)
	t.schedule(e)
}

// overdueTurn is an initializer whose time has just passed.
type overdueTurn struct {
	name  string
	after time.Duration
}

// overdue marks the initializers whose time has passed and returns them. The entry is busy until
// expire has handled them.
func (t *tracker) overdue(e *entry) []overdueTurn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.ended || e.busy {
		return nil
	}
	d := t.store.d
	now := d.Clock.Now()
	var late []overdueTurn
	for i := range e.turns {
		turn := &e.turns[i]
		if after := now.Sub(turn.since); !turn.late && after >= d.Timeout {
			turn.late = true
			late = append(late, overdueTurn{turn.name, after})
		}
	}
	if len(late) == 0 {
		// Another timer was set while this timer fired.
		return nil
	}
	t.disarm(e)
	e.busy = true
	return late
}

func (t *tracker) expireOne(e *entry, name string, after time.Duration) {
	d := t.store.d
	if d.MustAct(name) {
		d.Observe(Event{Kind: TimedOutFailed, Resource: t.store.resource, Initializer: name, After: after})
		e.answer(nil, &waitsError{apierrors.NewTimeoutError(fmt.Sprintf(
			"initializer %q did not act on %s %q within %s and its failurePolicy is Fail: the object is stored and stays uninitialized until the initializer acts",
			name, t.store.resource, e.name, d.Timeout), 0)})
		return
	}
	obj, err := t.store.remove(d.ctx, e.key, e.uid, name)
	if err != nil {
		if d.ctx.Err() != nil {
			return
		}
		klog.ErrorS(err, "Could not remove an initializer that did not act in time; will retry", "resource", t.store.resource, "key", e.key, "initializer", name)
		t.restart(e, name)
		return
	}
	if obj == nil {
		// The initializer acted in the last moment.
		t.check(d.ctx, e)
		return
	}
	d.Observe(Event{Kind: TimedOutIgnored, Resource: t.store.resource, Initializer: name, After: after})
	t.observe(obj)
}

// restart starts the time of an initializer once more: storage may be unavailable for a while.
func (t *tracker) restart(e *entry, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(e.turns, func(turn turn) bool { return turn.name == name }); i >= 0 {
		e.turns[i].late = false
		e.turns[i].since = t.store.d.Clock.Now()
	}
}

// stuck is an object whose overdue initializers must act. It is not followed.
type stuck struct {
	key          string
	initializers []string
}

// remember notes an object that is about to be dropped, if it is stuck: it is followed again when
// the policy is not Fail any more (S11.47). The lock is held.
func (t *tracker) remember(e *entry) {
	var late []string
	for _, turn := range e.turns {
		if turn.late {
			late = append(late, turn.name)
		}
	}
	if len(late) > 0 {
		t.stick(e.key, e.uid, late)
	}
}

// inherit remembers an uninitialized object that is older than this server: no timer of an earlier
// process runs any more (S11.68).
func (t *tracker) inherit(key string, uid types.UID, obj runtime.Object) {
	field, err := initializers.Get(obj)
	if err != nil || field == nil || field.Result != nil {
		return
	}
	var leading []string
	for _, i := range t.store.leading(field) {
		leading = append(leading, i.Name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stick(key, uid, leading)
}

// stick adds an object to the stuck ones. Beyond maxTimers, objects are left to the repair
// (S11.50). The lock is held.
func (t *tracker) stick(key string, uid types.UID, leading []string) {
	if t.mu.stuck == nil {
		t.mu.stuck = map[types.UID]stuck{}
	}
	if _, known := t.mu.stuck[uid]; !known && len(t.mu.stuck) >= t.store.d.maxTimers {
		return
	}
	t.mu.stuck[uid] = stuck{key, leading}
	t.lookLater()
}

// lookLater calls lookAtStuck when a Timeout has passed. The lock is held.
func (t *tracker) lookLater() {
	if t.mu.looking {
		return
	}
	t.mu.looking = true
	d := t.store.d
	d.Clock.AfterFunc(d.Timeout, func() { d.spawn(t.lookAtStuck) })
}

// lookAtStuck resumes following the stuck objects whose initializers need not act any more. Their initializers
// get their full time again.
func (t *tracker) lookAtStuck() {
	d := t.store.d
	var free []string
	t.mu.Lock()
	t.mu.looking = false
	for uid, one := range t.mu.stuck {
		if !slices.ContainsFunc(one.initializers, d.MustAct) {
			free = append(free, one.key)
			delete(t.mu.stuck, uid)
		}
	}
	if len(t.mu.stuck) > 0 {
		t.lookLater()
	}
	t.mu.Unlock()
	for _, key := range free {
		obj := t.store.newObject()
		if err := t.store.Interface.Get(d.ctx, key, apistorage.GetOptions{}, obj); err != nil {
			if !apistorage.IsNotFound(err) && d.ctx.Err() == nil {
				klog.ErrorS(err, "Could not follow an object again whose initializers need not act any more; a read repairs it later", "resource", t.store.resource, "key", key)
			}
			continue
		}
		if field, err := initializers.Get(obj); err == nil && field != nil {
			t.follow(key, obj, field, false)
		}
	}
}
