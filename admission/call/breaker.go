package call

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker selects the failures that, in a row, make a Caller stop calling a webhook server, except for
// one attempt at a time, until it answers (S7.16). Rejections, HTTP errors and unusable answers never count, because the
// server answered.
type Breaker uint8

const (
	// BreakerConnect counts attempts to connect that failed or timed out.
	BreakerConnect Breaker = iota
	// BreakerTimeout also counts calls that timed out.
	BreakerTimeout
	// BreakerOff counts no failures.
	BreakerOff
)

// Breakers has the name of each Breaker.
var Breakers = []string{BreakerConnect: "connect", BreakerTimeout: "timeout", BreakerOff: "off"}

// String returns the name of the value.
func (b Breaker) String() string { return Breakers[b] }

const (
	// breakAfter is the number of failures in a row that open a circuit.
	breakAfter = 5
	// The pause between two attempts while a circuit is open begins with firstPause and doubles up
	// to longestPause.
	firstPause, longestPause = time.Second, 10 * time.Second
	// fairTime is the minimum time for which a call that timed out counts as a failure of the
	// webhook, if the API request left the call less than the webhook's own timeout.
	fairTime = time.Second
)

// breaker is the circuit breaker of a webhook server. While its circuit is open, one call at a time
// tries the server, after a pause. A breaker is safe for concurrent use. While the server has no
// failures, allow costs one atomic read.
type breaker struct {
	mode Breaker
	// name is the name of the server in a Circuit. observe, if not nil, is called with each
	// change of the circuit.
	name    string
	observe func(Circuit)
	// troubled is set from the first failure to the next success.
	troubled atomic.Bool
	mu       struct {
		sync.Mutex
		// failures counts the failures in a row. since is the end of the first one, and last is the
		// latest one.
		failures int
		since    time.Time
		last     *Failure
		open     bool
		// probing is set while a call tries the server. The next call may try it at the time until,
		// or earlier if the server's endpoints have changed.
		probing bool
		pause   time.Duration
		until   time.Time
		at      uint64
		// retired is set once no call will use the breaker again.
		retired bool
	}
}

// Circuit is a change of a webhook server's circuit.
type Circuit struct {
	// Target is the webhook server, HOST:PORT.
	Target string
	// Open reports whether the circuit is open: the server is not called.
	Open bool
	// Failures is the number of failed calls in a row, the first at Since; zero if the circuit was
	// closed.
	Failures int
	Since    time.Time
	// Err is the error of the latest failed call; nil if the circuit was closed.
	Err error
}

// allow returns nil if a call may be made, and otherwise an *openError. probe reports whether the
// call tries the server while the circuit is open.
func (b *breaker) allow(now time.Time, endpoints []string) (probe bool, err error) {
	if !b.troubled.Load() {
		return false, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.open {
		return false, nil
	}
	if !b.mu.probing && (!now.Before(b.mu.until) || b.mu.at != placeOf(endpoints)) {
		b.mu.probing, b.mu.at = true, placeOf(endpoints)
		return true, nil
	}
	e := &openError{target: b.name, failures: b.mu.failures, since: b.mu.since, last: b.mu.last}
	if !b.mu.probing {
		e.again = b.mu.until.Sub(now)
	}
	return false, e
}

// outcome is the result of a call for the state of the webhook server.
type outcome uint8

const (
	// unknown: the result does not depend on the server, for example because the client
	// disconnected.
	unknown outcome = iota
	reached
	failed
)

// judge returns the outcome of a call that failed with e, or succeeded if e is nil.
func (m Breaker) judge(e *Failure) outcome {
	switch {
	case e == nil || e.Class != Transport || !e.TimedOut && !e.Dial:
		return reached
	case e.ClientGone:
		return unknown
	case !e.Dial && m == BreakerConnect:
		return reached
	case e.TimedOut && e.RequestLimited && e.Limit < fairTime:
		return unknown
	}
	return failed
}

// record records the outcome of an allowed call, and reports a change of the circuit to observe.
func (b *breaker) record(now time.Time, o outcome, probe bool, endpoints []string, e *Failure) {
	if b.mode == BreakerOff || o != failed && !b.troubled.Load() {
		return
	}
	if change := b.change(now, o, probe, endpoints, e); change != nil && b.observe != nil {
		b.observe(*change)
	}
}

// change is record without the call of observe; it returns the change of the circuit, or nil.
func (b *breaker) change(now time.Time, o outcome, probe bool, endpoints []string, e *Failure) *Circuit {
	b.mu.Lock()
	defer b.mu.Unlock()
	if probe {
		b.mu.probing = false
	}
	switch {
	case b.mu.retired || o == unknown:
		return nil
	case o == reached:
		return b.reset()
	}
	if b.mu.failures == 0 {
		b.mu.since = now
		b.troubled.Store(true)
	}
	b.mu.failures++
	b.mu.last = e
	switch {
	case probe:
		b.mu.pause = min(2*b.mu.pause, longestPause)
	case !b.mu.open && b.mu.failures >= breakAfter:
		b.mu.open, b.mu.pause = true, firstPause
	default:
		// Too few failures, or the call began before the circuit was opened.
		return nil
	}
	b.mu.until, b.mu.at = now.Add(b.mu.pause), placeOf(endpoints)
	if probe {
		return nil
	}
	return &Circuit{Target: b.name, Open: true, Failures: b.mu.failures, Since: b.mu.since, Err: e}
}

// reset forgets all failures. The caller holds the lock.
func (b *breaker) reset() (change *Circuit) {
	if b.mu.open {
		change = &Circuit{Target: b.name}
	}
	b.mu.failures, b.mu.since, b.mu.last, b.mu.open = 0, time.Time{}, nil, false
	b.troubled.Store(false)
	return change
}

// retire closes the circuit, and makes the breaker ignore later outcomes.
func (b *breaker) retire() {
	b.mu.Lock()
	change := b.reset()
	b.mu.retired = true
	b.mu.Unlock()
	if change != nil && b.observe != nil {
		b.observe(*change)
	}
}

var placeSeed = maphash.MakeSeed()

// placeOf returns a hash of a set of endpoints, independent of their order.
func placeOf(endpoints []string) uint64 {
	var place uint64
	for _, e := range endpoints {
		place ^= maphash.String(placeSeed, e)
	}
	return place
}

// openError is the error of a call that was not made because earlier calls failed.
type openError struct {
	target   string
	failures int
	since    time.Time
	last     *Failure
	// again is the time until the next trial call; 0 during a trial call.
	again time.Duration
}

func (e *openError) Error() string {
	next := "a trial call is running"
	if e.again > 0 {
		next = fmt.Sprintf("the next trial call is in %s", e.again.Round(time.Millisecond))
	}
	return fmt.Sprintf("the last %d calls to %s failed, the first at %s, the latest because of: %s; %s",
		e.failures, e.target, e.since.UTC().Format(time.RFC3339), cut(e.last.reason(), maxText/2), next)
}

func (e *openError) Unwrap() error { return e.last.Cause }
