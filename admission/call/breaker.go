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
	// BreakerTimeout counts, besides, calls that were not answered in time.
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
	// fairTime is what a call must have been given for its running out of time to
	// say something about the webhook, unless it had its own timeout.
	fairTime = time.Second
)

// breaker remembers whether a webhook server can be reached. While its circuit
// is open, one call at a time is let through to try it, after a pause. It is safe
// for concurrent use; while all is well it costs one atomic read.
type breaker struct {
	mode Breaker
	// name is the name of the server in a Circuit, and observe is called with each change; nil for none.
	name    string
	observe func(Circuit)
	// troubled is set from the first failure to the next success.
	troubled atomic.Bool
	mu       struct {
		sync.Mutex
		// failures are those in a row, since is when the first of them ended, last
		// what the latest was.
		failures int
		since    time.Time
		last     *Failure
		open     bool
		// probing is set while a call tries the server. The next one may when
		// until has come, or when the server's endpoints are not those of before.
		probing bool
		pause   time.Duration
		until   time.Time
		at      uint64
		// retired is set when nobody will ask any more.
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
	// Err is how the latest of them failed; nil when the circuit was closed.
	Err error
}

// allow reports whether a call may be made: nil, or an *openError. probe means that
// it tries the server on behalf of all.
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
	// unknown: nothing, such as when the client left.
	unknown outcome = iota
	reached
	failed
)

// judge says what a call tells, which failed with e unless that is nil.
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

// record takes down what came of a call that was allowed.
func (b *breaker) record(now time.Time, o outcome, probe bool, endpoints []string, e *Failure) {
	if b.mode == BreakerOff || o != failed && !b.troubled.Load() {
		return
	}
	if change := b.change(now, o, probe, endpoints, e); change != nil && b.observe != nil {
		b.observe(*change)
	}
}

// change is record without telling anybody; it returns what there is to tell.
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

// retire ends the breaker's life: its circuit counts no more.
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

// placeOf stands for a set of endpoints, in whichever order.
func placeOf(endpoints []string) uint64 {
	var place uint64
	for _, e := range endpoints {
		place ^= maphash.String(placeSeed, e)
	}
	return place
}

// openError says that a call was not made because those before it failed.
type openError struct {
	target   string
	failures int
	since    time.Time
	last     *Failure
	// again is when the server is tried next; 0 while it is being tried.
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
