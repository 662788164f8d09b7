package call

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// slots bound the concurrent calls to one webhook server, so that a slow one does not exhaust this
// server. Calls beyond the bound wait, the call with the earliest deadline first. A call fails
// immediately if it cannot meet its deadline (S7.17). It is safe for concurrent use.
type slots struct {
	name string
	max  int
	// bodies is shared by all slots of a Caller.
	bodies *bodies
	mu     struct {
		sync.Mutex
		taken int
		// queue has the waiting calls, the earliest deadline first.
		queue []*waiter
		// usual is the smoothed duration of recent calls; since is the time of the last change of
		// the set of running calls.
		usual time.Duration
		since time.Time
	}
}

// usualWeight is the weight of new calls in usual: each call replaces 1/usualWeight of it.
const usualWeight = 8

// take waits for a slot until ctx ends. deadline is the deadline of ctx or later, and size is the
// size of the call's body. waited reports whether the call had to wait. The error is a *busyError,
// or ctx.Err() if ctx was cancelled. Without an error, the caller must release the slot.
func (s *slots) take(ctx context.Context, now, deadline time.Time, size int64) (waited bool, err error) {
	s.mu.Lock()
	if s.mu.taken < s.max {
		s.mu.taken++
		s.mu.since = now
		s.mu.Unlock()
		return false, nil
	}
	if err := s.foresee(now, deadline); err != nil {
		s.mu.Unlock()
		return false, err
	}
	if !s.bodies.hold(size) {
		defer s.mu.Unlock()
		return false, &busyError{target: s.name, taken: s.max, waiting: len(s.mu.queue), size: size, bodies: s.bodies.max}
	}
	defer s.bodies.drop(size)
	w := &waiter{deadline: deadline, granted: make(chan struct{})}
	s.mu.queue = slices.Insert(s.mu.queue, s.place(deadline), w)
	s.mu.Unlock()

	select {
	case <-w.granted:
		return true, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.mu.queue, w); i >= 0 {
		s.mu.queue = slices.Delete(s.mu.queue, i, i+1)
	} else {
		// The call got its slot too late, and passes it on.
		s.pass(time.Now())
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return true, ctx.Err()
	}
	return true, &busyError{target: s.name, taken: s.max, waiting: len(s.mu.queue), waited: deadline.Sub(now)}
}

// give releases a slot after a call, and records the duration of the call. leave releases a slot
// without a call.
func (s *slots) give(now time.Time, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.usual = cmp.Or(s.mu.usual, took)
	s.mu.usual += (took - s.mu.usual) / usualWeight
	s.pass(now)
}

func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(time.Now())
}

// pass gives a slot to the waiting call with the earliest deadline. The caller holds the lock.
func (s *slots) pass(now time.Time) {
	s.mu.since = now
	if len(s.mu.queue) == 0 {
		s.mu.taken--
		return
	}
	close(s.mu.queue[0].granted)
	s.mu.queue = slices.Delete(s.mu.queue, 0, 1)
}

// place returns the queue index for a call with a deadline. The caller holds the lock.
func (s *slots) place(deadline time.Time) int {
	return sort.Search(len(s.mu.queue), func(i int) bool { return s.mu.queue[i].deadline.After(deadline) })
}

// foresee returns an error if a call has too little time to wait for a slot and for its answer. It
// estimates the duration of a call as at least the time since mu.since, because all running calls
// have lasted that long. The caller holds the lock.
func (s *slots) foresee(now, deadline time.Time) error {
	each := max(s.mu.usual, now.Sub(s.mu.since))
	left := deadline.Sub(now)
	if each+each*time.Duration(s.place(deadline)+1)/time.Duration(s.max) <= left {
		return nil
	}
	return &busyError{target: s.name, taken: s.max, waiting: len(s.mu.queue), each: each, left: left}
}

// state returns the number of running and of waiting calls, and the recent duration of calls.
func (s *slots) state() (taken, waiting int, usual time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.taken, len(s.mu.queue), s.mu.usual
}

// maxWaitingBodies bounds, in bytes, the bodies of a Caller's waiting calls. Each waiting request
// keeps its body in memory, and its decoded objects, which take several times as much. The bound
// allows for a thousand reviews of 256 KiB, or for more reviews that are smaller.
const maxWaitingBodies = 256 << 20

// bodies counts the bytes that wait to be sent, to any server. It is safe for concurrent use; nil
// has no bound.
type bodies struct {
	max  int64
	held atomic.Int64
}

// hold adds a body to the count unless the sum would exceed the bound, and reports whether it did.
// drop subtracts a body.
func (b *bodies) hold(size int64) bool {
	if b == nil {
		return true
	}
	if b.held.Add(size) > b.max {
		b.held.Add(-size)
		return false
	}
	return true
}

func (b *bodies) drop(size int64) {
	if b != nil {
		b.held.Add(-size)
	}
}

// waiter is a call that waits for a slot.
type waiter struct {
	deadline time.Time
	granted  chan struct{}
}

// busyError is the error of a call that was not made because too many calls are running.
type busyError struct {
	target         string
	taken, waiting int
	// each is the expected duration of a call, and left the remaining time of this call, if take
	// did not wait because left was too short. Otherwise waited is the time that the call waited.
	each, left, waited time.Duration
	// size is the size of the call's body if, with this body, the bodies of all waiting calls would
	// exceed the bound. bodies is the bound.
	size, bodies int64
}

func (e *busyError) Error() string {
	under := fmt.Sprintf("%d calls to %s are running and %d are waiting", e.taken, e.target, e.waiting)
	if e.bodies > 0 {
		return fmt.Sprintf("%s; this review of %d bytes would bring the reviews that wait for slow webhooks above %d MiB", under, e.size, e.bodies>>20)
	}
	if e.waited > 0 {
		return fmt.Sprintf("%s; none finished within the %s that this call could wait", under, e.waited.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s; recent calls took %s, and this call has %s left", under, e.each.Round(time.Millisecond), e.left.Round(time.Millisecond))
}
