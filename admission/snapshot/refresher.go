package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Reader reads registrations from their store.
type Reader interface {
	// Read reads all registrations. It is consistent: the result reflects every write that was
	// acknowledged before Read was called. since is the Version of the previous read, empty if
	// there is none. If nothing has changed, Read may return Unchanged instead of the objects, and
	// if little has changed, Partial and Changes. Read must end with the context. Several reads may
	// run at the same time. An error that wraps ErrUnanswered means that the store may answer
	// later.
	Read(ctx context.Context, since Version) (Registrations, error)
}

// ErrUnanswered is wrapped by errors of a Reader if the store has not answered yet. Requests then
// wait for the answer until their deadline.
var ErrUnanswered = errors.New("the store did not answer")

// ErrUnannounced is wrapped by errors of a Reader that does not read because the main server does
// not know this server. Requests that need a snapshot then get 503.
var ErrUnannounced = errors.New("this server is not announced to the main server")

// mayAnswer reports whether the store may still answer, given the error of the last read, which may
// be nil.
func mayAnswer(err error) bool {
	return err == nil || errors.Is(err, ErrUnanswered) || errors.Is(err, context.DeadlineExceeded)
}

// Options configure a Refresher.
type Options struct {
	// Reader must be set.
	Reader Reader
	// Interval is the time from the beginning of one read to the beginning of the next. Zero means
	// 1 s (S11.8). After a failed read, the next one begins after a quarter of it. A request waits
	// for a read that is late by more than a quarter of an Interval (S11.9).
	Interval time.Duration
	// MaxStaleness bounds the time since the beginning of the last successful read. Zero means 5 s
	// (S11.10).
	MaxStaleness time.Duration
	// Strict makes Acquire wait for a read that began after the request, so that the request is
	// evaluated against every registration acknowledged anywhere before it. A request begins at the
	// received timestamp in its context (request.WithReceivedTimestamp), or else when Acquire is
	// called. One read serves all waiting requests. Reads should then be cheap.
	Strict bool
	// Local, if set, returns the manifest files and exclusion rules. The Refresher calls Local
	// before every read; after a change, call Poke. The returned value must not change.
	Local func() *Local
	// Observer, if set, is called by Run with the outcome of every read.
	Observer func(Read)
	// Witness, if set, returns the Witness that observes the evaluation of an entry's expressions.
	Witness func(*registration.Entry) expression.Witness

	// readTimeout is the time after which a read counts as failed and another one begins. A later
	// answer is still used, if it comes within maxReadTimeout. Only tests set readTimeout. Zero
	// means a time that leaves room, after a read that hangs, for another read within MaxStaleness:
	// 2 s with the defaults.
	readTimeout time.Duration
}

// slackShares is the part of an Interval by which a regular read may be late before requests wait
// for it.
const slackShares = 4

// patience bounds how long Acquire waits for a usable snapshot, counted from the first request that
// had to wait (S11.13). While the store does not answer, a request whose context has a deadline
// waits until the deadline.
const patience = 4 * time.Second

// Read is the outcome of one read.
type Read struct {
	// Begin is the beginning of the read, and Latency its duration, including compilation.
	Begin   time.Time
	Latency time.Duration
	// Err is the error of the read; nil if it succeeded.
	Err error
	// Late reports whether the read succeeded after it had counted as failed, because it exceeded
	// the read timeout.
	Late bool
	// Snapshot is the current snapshot after the read; nil if there is none yet.
	Snapshot *Snapshot
	// Changed reports whether the registrations differ from the previous read.
	Changed bool
}

// Refresher keeps a snapshot fresh. It is safe for concurrent use, except that Run must be called
// once.
type Refresher struct {
	options Options
	current atomic.Pointer[Snapshot]
	poke    chan struct{}
	// over is closed when Run has returned.
	over chan struct{}
	// attempts are the reads of Run.
	attempts attempts

	// mu guards the fields below. No goroutine blocks while it holds mu.
	mu struct {
		sync.Mutex
		// next is closed by the next read that succeeds or fails.
		next chan struct{}
		// err is the error of the last read; nil if it succeeded, or there was none.
		err error
		// failed is the beginning of the last failed read.
		failed time.Time
		// succeeded is the time of the last success. waiting is the time when the first request
		// after it had to wait; it is not later than succeeded if none had to.
		succeeded, waiting time.Time
	}
}

// NewRefresher returns a Refresher, which has no snapshot until the first read of Run. The error
// names the invalid option.
func NewRefresher(o Options) (*Refresher, error) {
	if o.Reader == nil {
		return nil, errors.New("snapshot: Options.Reader is nil")
	}
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.MaxStaleness = cmp.Or(o.MaxStaleness, 5*time.Second)
	if o.Interval < 0 || o.Interval >= o.MaxStaleness {
		return nil, fmt.Errorf("snapshot: Options.Interval %s is not between 0 and MaxStaleness %s", o.Interval, o.MaxStaleness)
	}
	o.readTimeout = cmp.Or(o.readTimeout, (o.MaxStaleness-o.Interval)/2)
	r := &Refresher{options: o, poke: make(chan struct{}, 1), over: make(chan struct{}), attempts: newAttempts()}
	r.mu.next = make(chan struct{})
	return r, nil
}

// retries is the number of reads in an Interval while they fail immediately: requests may be
// waiting for the first success.
const retries = 4

// Run reads until the context ends, and returns the context's error.
func (r *Refresher) Run(ctx context.Context) error {
	defer close(r.over)
	defer r.attempts.end()
	compiler := Compiler{witness: r.options.Witness}
	var version Version
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-r.poke:
		case late := <-r.attempts.answers:
			r.attempts.over(late)
			if r.helps(late, version) {
				version, _ = r.use(ctx, &compiler, version, late.begin, r.local(), late.found, nil, true)
			}
			continue
		}
		begin := time.Now()
		next := r.options.Interval
		var err error
		if version, err = r.refresh(ctx, &compiler, version, begin); err != nil {
			next /= retries
		} else {
			// An earlier attempt may have answered.
			begin = r.current.Load().ReadAt
		}
		timer.Reset(max(0, next-time.Since(begin)))
	}
}

// Poke makes the next read begin now instead of at its regular time. A watch may call Poke, so that
// changes take effect at once, but need not. Poke does not block.
func (r *Refresher) Poke() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// refresh reads once. It returns the version of the registrations in the Compiler, and the error of
// the read.
func (r *Refresher) refresh(ctx context.Context, compiler *Compiler, version Version, begin time.Time) (Version, error) {
	local := r.local()
	found, began, err := r.read(ctx, version, begin)
	return r.use(ctx, compiler, version, began, local, found, err, began.Before(begin))
}

func (r *Refresher) local() *Local {
	if r.options.Local == nil {
		return nil
	}
	return r.options.Local()
}

// helps reports whether a late read succeeded with registrations that are newer than the current
// ones.
func (r *Refresher) helps(late attempt, version Version) bool {
	last := r.current.Load()
	return late.err == nil && late.since == version && (last == nil || late.begin.After(last.ReadAt))
}

// use compiles the result of a read and stores the snapshot, or records the error of the read,
// which began at the given time. It returns the results of refresh.
func (r *Refresher) use(ctx context.Context, compiler *Compiler, version Version, begin time.Time, local *Local, found Registrations, err error, late bool) (Version, error) {
	last := r.current.Load()
	changed := false
	var s *Snapshot
	if err == nil && found.Partial {
		found.Local = local
		if s = compiler.Change(found); s == nil {
			// The compiler is not at this version anymore, even if the next read fails.
			version = ""
			found, _, err = r.read(ctx, "", time.Now())
		}
	}
	found.Local = local
	if err == nil && s == nil && (last == nil || version == "" || !found.Unchanged && found.Version != version) {
		if s, err = compiler.CompileAll(ctx, found); err != nil {
			// The compiler has objects of two versions.
			version = ""
		}
	}
	if err == nil {
		switch {
		case s != nil:
			version, changed = found.Version, true
		case last.local != local:
			found.Revision = cmp.Or(found.Revision, last.Revision)
			s, changed = compiler.assemble(&found), true
		default:
			again := *last
			s = &again
			s.Disabled = found.Disabled
			s.Revision = cmp.Or(found.Revision, s.Revision)
		}
		s.ReadAt = begin
		r.succeed(s)
	} else {
		r.failed(begin, err)
	}
	if r.options.Observer != nil {
		r.options.Observer(Read{Begin: begin, Latency: time.Since(begin), Err: err, Late: late, Snapshot: r.current.Load(), Changed: changed})
	}
	return version, err
}

// read begins a read, and waits for the read timeout. It may return the late answer to an earlier
// attempt, and therefore also returns the beginning of the answered attempt.
func (r *Refresher) read(ctx context.Context, since Version, begin time.Time) (Registrations, time.Time, error) {
	own := r.attempts.begin(ctx, r.options.Reader, since, begin)
	timer := time.NewTimer(r.options.readTimeout)
	defer timer.Stop()
	for {
		select {
		case a := <-r.attempts.answers:
			r.attempts.over(a)
			if a.number == own || r.helps(a, since) {
				return a.found, a.begin, a.err
			}
		case <-timer.C:
			return Registrations{}, begin, context.DeadlineExceeded
		case <-ctx.Done():
			return Registrations{}, begin, ctx.Err()
		}
	}
}

// failed records the error of a read that began at the given time, and wakes the waiting requests:
// some of them need not wait any longer.
func (r *Refresher) failed(begin time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.err, r.mu.failed = err, begin
	close(r.mu.next)
	r.mu.next = make(chan struct{})
}

// succeed stores a snapshot and wakes the requests that wait for it.
func (r *Refresher) succeed(s *Snapshot) {
	r.current.Store(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.mu.next)
	r.mu.next = make(chan struct{})
	r.mu.err = nil
	r.mu.succeeded = time.Now()
}

// Current returns the last good snapshot, however old (S11.9); nil before the first. It is for
// inspection, not for admission.
func (r *Refresher) Current() *Snapshot { return r.current.Load() }

// Static returns the snapshot of manifest files; nil if there are none. It needs no read, so that
// the files apply at any time to requests for webhook configurations and policies of the API
// (S21.17).
func (r *Refresher) Static() *Snapshot {
	if r.options.Local == nil {
		return nil
	}
	return r.options.Local().Static()
}

// Await begins a read now, and returns nil once the current snapshot is enough, which may be
// immediately. It returns an error if the context or Run ends first.
func (r *Refresher) Await(ctx context.Context, enough func(*Snapshot) bool) error {
	for poked := false; ; poked = true {
		r.mu.Lock()
		next := r.mu.next
		r.mu.Unlock()
		if s := r.current.Load(); s != nil && enough(s) {
			return nil
		}
		if !poked {
			r.Poke()
		}
		select {
		case <-next:
			continue
		case <-r.over:
			return errOver
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			return cmp.Or(r.mu.err, ctx.Err())
		}
	}
}

// Acquire reserves a tenth of a request's time, and at most maxAnswering, for the response with the
// reason of the failure.
const (
	answeringShares = 10
	maxAnswering    = 500 * time.Millisecond
)

var errOver = errors.New("reading registrations has stopped")

// Acquire returns a usable snapshot for a request. A snapshot whose read began more than one and a
// quarter Intervals ago is usable only if a later read has failed (S11.9). If there is none,
// Acquire waits for the next successful read. If none succeeds in time, it returns a
// *NotReadyError, which is the API status for the client (S11.11). While the store does not answer,
// it waits until the context ends. If reads fail for another reason, or the context has no
// deadline, it waits at most a few seconds. Once a request has waited that long without a snapshot,
// later requests are refused at once (S11.13). Normally Acquire takes about a hundred nanoseconds.
func (r *Refresher) Acquire(ctx context.Context, subject Subject) (*Snapshot, error) {
	now := time.Now()
	began := now
	if r.options.Strict {
		// The first pass of a request waits, and the later passes use the same snapshot.
		if received, ok := request.ReceivedTimestampFrom(ctx); ok {
			began = received
		}
	}
	if s := r.usable(began, now, now); s != nil {
		return s, nil
	}
	return r.await(ctx, subject, began, now)
}

// usable returns the current snapshot if a request may use it now. began is the beginning of the
// request, and asked the time of its call of Acquire. A snapshot whose read began after asked is
// never too old for the request, however long the read took.
func (r *Refresher) usable(began, asked, now time.Time) *Snapshot {
	s := r.current.Load()
	switch {
	case s == nil, r.options.Strict && s.ReadAt.Before(began):
		return nil
	case !s.ReadAt.Before(asked):
		return s
	case now.Sub(s.ReadAt) > r.options.MaxStaleness, !r.options.Strict && r.overdue(s, asked):
		return nil
	}
	return s
}

// overdue reports whether a request at the given time must wait for another read, because no read
// has ended that began as late as a regular one would have. This happens after the process was
// paused: without this check, the process would use registrations from before its pause. A failed
// read is enough (S11.9).
func (r *Refresher) overdue(s *Snapshot, asked time.Time) bool {
	oldest := asked.Add(-r.options.Interval - r.options.Interval/slackShares)
	if !s.ReadAt.Before(oldest) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.failed.Before(oldest)
}

func (r *Refresher) await(ctx context.Context, subject Subject, began, asked time.Time) (*Snapshot, error) {
	next, end := r.wait(ctx, began)
	if r.options.Strict {
		// The read that Poke starts begins after the request. If it fails, the next regular read
		// takes its place.
		r.Poke()
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	for patient := time.Now().Before(end); patient; {
		if s := r.usable(began, asked, time.Now()); s != nil {
			return s, nil
		}
		select {
		case <-next:
			next, end = r.wait(ctx, began)
			timer.Reset(time.Until(end))
		case <-timer.C:
			patient = false
		case <-ctx.Done():
			patient = false
		}
	}
	if s := r.usable(began, asked, time.Now()); s != nil {
		return s, nil
	}
	return nil, r.notReady(subject)
}

// wait returns a channel that is closed when the next read succeeds or fails. end is the time at
// which a request that began at the given time stops waiting.
func (r *Refresher) wait(ctx context.Context, began time.Time) (next <-chan struct{}, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.waiting.After(r.mu.succeeded) {
		r.mu.waiting = began
		if began.Before(r.mu.succeeded) {
			r.mu.waiting = r.mu.succeeded
		}
	}
	end = r.mu.waiting.Add(patience)
	if deadline, limited := ctx.Deadline(); limited {
		// At the deadline itself, the server would respond with a timeout that does not contain the
		// reason.
		deadline = deadline.Add(-min(deadline.Sub(began)/answeringShares, maxAnswering))
		if mayAnswer(r.mu.err) || deadline.Before(end) {
			end = deadline
		}
	}
	return r.mu.next, end
}
