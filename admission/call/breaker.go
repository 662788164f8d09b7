package call

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker says which failures, when they come in a row, make a Caller stop
// calling a webhook server until it answers again (S7.16). Rejections, HTTP errors and
// answers that cannot be used are never among them: they are answers.
type Breaker uint8

const (
	// BreakerConnect counts attempts to connect that failed or that were not
	// done in time.
	BreakerConnect Breaker = iota
	// BreakerTimeout also counts calls that were not answered in time.
	BreakerTimeout
	// BreakerOff counts nothing.
	BreakerOff
)

// Breakers are the names of the values of Breaker, by value.
var Breakers = []string{BreakerConnect: "connect", BreakerTimeout: "timeout", BreakerOff: "off"}

// String returns the name of the value.
func (b Breaker) String() string { return Breakers[b] }

const (
	// breakAfter is how many failures in a row open a circuit.
	breakAfter = 5
	// Between two attempts while a circuit is open, the first of these passes at
	// first, then twice that, and so on up to the second.
	firstPause, longestPause = time.Second, 10 * time.Second
	// fairTime is the least time with which a call that timed out counts as a failure of the
	// webhook, when the API request left the call less than the webhook's own timeout.
	fairTime = time.Second
)

// breaker remembers whether a webhook server can be reached. While its circuit is open, one
// call at a time tries the server, after a pause. A breaker is safe for concurrent use. While
// the server has no failures, allow costs one atomic read.
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
		// failures counts the failures in a row. since is when the first of them ended, and
		// last is the latest of them.
		failures int
		since    time.Time
		last     *Failure
		open     bool
		// probing is set while a call tries the server. The next call may try it at the time
		// until, or earlier if the server's endpoints have changed.
		probing bool
		pause   time.Duration
		until   time.Time
		at      uint64
		// retired is set when no call will use the breaker any more.
		retired bool
	}
}

// Circuit is a change of a webhook server's circuit.
type Circuit struct {
	// Target is the webhook server, HOST:PORT.
	Target string
	// Open reports whether the circuit is open now: calls are not made.
	Open bool
	// Failures is how many calls have failed in a row, the first at Since; zero
	// when the circuit was closed.
	Failures int
	Since    time.Time
	// Err is the error of the latest failed call; nil when the circuit was closed.
	Err error
}

// allow returns nil if a call may be made, and an *openError if not. probe reports whether the
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

// outcome is what a call that was made says about the webhook server.
type outcome uint8

const (
	// unknown: the call says nothing about the server, for example because the client left.
	unknown outcome = iota
	reached
	failed
)

// judge returns what a call says about the server. e is how the call failed, nil if it
// succeeded.
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

// record notes the outcome of a call that was allowed, and reports a change of the circuit to
// observe.
func (b *breaker) record(now time.Time, o outcome, probe bool, endpoints []string, e *Failure) {
	if b.mode == BreakerOff || o != failed && !b.troubled.Load() {
		return
	}
	if change := b.change(now, o, probe, endpoints, e); change != nil && b.observe != nil {
		b.observe(*change)
	}
}

// change is record without the call of observe; it returns the change of the circuit, nil if
// there is none.
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
		// Too few, or a call made before the circuit was opened.
		return nil
	}
	b.mu.until, b.mu.at = now.Add(b.mu.pause), placeOf(endpoints)
	if probe {
		return nil
	}
	return &Circuit{Target: b.name, Open: true, Failures: b.mu.failures, Since: b.mu.since, Err: e}
}

// reset forgets all failures. The lock is held.
func (b *breaker) reset() (change *Circuit) {
	if b.mu.open {
		change = &Circuit{Target: b.name}
	}
	b.mu.failures, b.mu.since, b.mu.last, b.mu.open = 0, time.Time{}, nil, false
	b.troubled.Store(false)
	return change
}

// retire closes the circuit, and makes the breaker ignore all later outcomes.
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

// placeOf returns a hash of a set of endpoints; their order does not matter.
func placeOf(endpoints []string) uint64 {
	var place uint64
	for _, e := range endpoints {
		place ^= maphash.String(placeSeed, e)
	}
	return place
}

// openError means that a call was not made because the calls before it failed.
type openError struct {
	target   string
	failures int
	since    time.Time
	last     *Failure
	// again is the time until the next trial call; 0 while a trial call is running.
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
