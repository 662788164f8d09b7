package initialization

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// expire applies the failure policies of initializers that did not act in time (S11.45, S11.46).
func (t *tracker) expire(e *entry) {
	if t.given(e) {
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

// given reports whether the time of the initializers that hold the object has passed. If so, it
// marks the entry as busy.
func (t *tracker) given(e *entry) bool {
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
		// Another timer was set while this one fired.
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
		t.again(e, name)
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

// again starts the time of an initializer once more: storage may be unavailable for a while.
func (t *tracker) again(e *entry, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(e.turns, func(turn turn) bool { return turn.name == name }); i >= 0 {
		e.turns[i].late = false
		e.turns[i].since = t.store.d.Clock.Now()
	}
}
