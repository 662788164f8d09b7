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

// Reader reads registrations from where they are stored.
type Reader interface {
	// Read reads all registrations. It is consistent: the result reflects every write that was
	// acknowledged before Read was called. since is the Version of the read before, empty when
	// there is none; when nothing has changed, Read may return Unchanged instead of the
	// objects, and when little has changed, Partial and Changes. Read must end when the context
	// does. Several reads may run at the same time. An error that is ErrUnanswered means that
	// the store may answer later.
	Read(ctx context.Context, since Version) (Registrations, error)
}

// ErrUnanswered is wrapped by errors of a Reader that mean only that the store has not answered
// yet. Requests then wait for the answer until their deadline.
var ErrUnanswered = errors.New("the store did not answer")

// ErrUnannounced is wrapped by errors of a Reader that does not read because the main server does
// not know of this server. Requests that need a snapshot get 503 then.
var ErrUnannounced = errors.New("this server is not announced to the main server")

// mayAnswer reports whether the store may still answer, given the error of the last read, which
// may be nil.
func mayAnswer(err error) bool {
	return err == nil || errors.Is(err, ErrUnanswered) || errors.Is(err, context.DeadlineExceeded)
}

// Options say how a Refresher works.
type Options struct {
	// Reader must be set.
	Reader Reader
	// Interval is the time from the beginning of one read to the beginning of the next. Zero
	// means 1 s (S11.8). After a failed read, the next one begins after a quarter of that. A
	// request waits for a read that is later than a quarter of an Interval (S11.9).
	Interval time.Duration
	// MaxStaleness is how long ago the last successful read may have begun. Zero
	// means 5 s (S11.10).
	MaxStaleness time.Duration
	// Strict makes Acquire wait for a read that began after the request did, so that
	// a request is judged by every registration acknowledged anywhere before it. A
	// request begins when the server received it, if its context says when that was
	// (request.WithReceivedTimestamp), else when Acquire is called. One read serves
	// all requests that wait. Reads should be cheap then.
	Strict bool
	// Local, when set, returns what does not come from the API. The Refresher calls Local
	// before every read; after a change, call Poke. The returned value must not change.
	Local func() *Local
	// Observer, when set, is called by Run with the outcome of every read.
	Observer func(Read)
	// Witness, when set, returns the Witness that sees how the expressions of an entry are
	// evaluated.
	Witness func(*registration.Entry) expression.Witness

	// readTimeout is how long a read may take until it counts as failed and another one begins.
	// An answer that comes later, but within maxReadTimeout, is used all the same. Only tests
	// set readTimeout. Zero means a time that leaves room, after a read that hangs, for another
	// read before MaxStaleness is over: 2 s with the defaults.
	readTimeout time.Duration
}

// slackShares is the part of an Interval that a regular read may be late without any request
// that waits for it.
const slackShares = 4

// patience is how long Acquire waits when no snapshot may be used, counted from the first
// request that had to wait (S11.13). While the store does not answer, a request whose context
// has a deadline waits until then.
const patience = 4 * time.Second

// Read is the outcome of one read.
type Read struct {
	// Begin is when the read began, and Latency how long it took, compiling included.
	Begin   time.Time
	Latency time.Duration
	// Err is why the read failed; nil when it succeeded.
	Err error
	// Late reports whether the read succeeded after it had counted as failed, because it took
	// longer than a read may.
	Late bool
	// Snapshot is the snapshot in use after the read; nil when there is none yet.
	Snapshot *Snapshot
	// Changed reports whether the read found other registrations than the one before.
	Changed bool
}

// Refresher keeps a snapshot fresh. It is safe for concurrent use, except that Run
// must be called once.
type Refresher struct {
	options Options
	current atomic.Pointer[Snapshot]
	poke    chan struct{}
	// over is closed when Run has returned.
	over chan struct{}
	// attempts are the reads that Run began.
	attempts attempts

	// mu guards the fields below. No goroutine waits for anything while it holds mu.
	mu struct {
		sync.Mutex
		// next is closed by the next read that succeeds or fails.
		next chan struct{}
		// err is why the last read failed; nil when it succeeded, or there was none.
		err error
		// failed is when the last read began that failed.
		failed time.Time
		// succeeded is when a read last succeeded. waiting is when the first request after that
		// had to wait; it is not later than succeeded if none had to.
		succeeded, waiting time.Time
	}
}

// NewRefresher makes a Refresher. It has no snapshot until Run has read one. The
// error names the option that is wrong.
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

// retries is how many reads begin in an Interval while they fail at once: requests may be
// waiting for the first read that succeeds.
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
			// The answer may be that to an earlier attempt.
			begin = r.current.Load().ReadAt
		}
		timer.Reset(max(0, next-time.Since(begin)))
	}
}

// Poke makes the next read begin now instead of at its regular time. A watch on the
// registrations may call Poke, so that changes are seen at once, but need not. Poke does not
// block.
func (r *Refresher) Poke() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// refresh reads once. It returns the version of the registrations that the Compiler has now,
// and the error of the read.
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

// helps reports whether a late read succeeded and found registrations that are newer than those
// in use.
func (r *Refresher) helps(late attempt, version Version) bool {
	last := r.current.Load()
	return late.err == nil && late.since == version && (last == nil || late.begin.After(last.ReadAt))
}

// use compiles what a read found and puts the snapshot into use, or notes the error of the
// read, which began at the given time. Its results are those of refresh.
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

// read begins a read, and waits as long as a read may take. It may return the late answer to an
// earlier attempt, and therefore also returns when that attempt began.
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

// failed notes why the read failed that began at the given time, and wakes the waiting requests:
// some of them need not wait any longer.
func (r *Refresher) failed(begin time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.err, r.mu.failed = err, begin
	close(r.mu.next)
	r.mu.next = make(chan struct{})
}

// succeed puts a snapshot into use and wakes the requests that wait for it.
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
// inspection, not for judging requests.
func (r *Refresher) Current() *Snapshot { return r.current.Load() }

// Static returns the registrations of manifest files, nil when there are none. It needs no
// read, so that the files judge requests about registrations of the API at any time (S21.17).
func (r *Refresher) Static() *Snapshot {
	if r.options.Local == nil {
		return nil
	}
	return r.options.Local().Static()
}

// Await makes the next read begin now, and returns nil when the snapshot in use is enough; that
// may be the case already. An error means that the context or Run has ended before.
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

// Acquire keeps a tenth of a request's time, and at most maxAnswering, for the answer that says
// why the request cannot be judged.
const (
	answeringShares = 10
	maxAnswering    = 500 * time.Millisecond
)

var errOver = errors.New("reading registrations has stopped")

// Acquire returns a snapshot that may judge a request. That of a read that began more than one and
// a quarter Intervals before may do so only when a younger read has failed (S11.9). If there is
// none, Acquire waits for the next read that succeeds. If none succeeds in time, it returns a *NotReadyError, which is the
// API status for the client (S11.11). While the store does not answer, it waits until the
// context ends. When reads fail for another reason, or the context has no deadline, it waits a
// few seconds at most. Once a request has waited that long without a snapshot, later requests
// are refused at once (S11.13). Normally it takes about a hundred nanoseconds.
func (r *Refresher) Acquire(ctx context.Context, subject Subject) (*Snapshot, error) {
	now := time.Now()
	began := now
	if r.options.Strict {
		// Of the passes that judge a request, the first one waits, and the later ones find the
		// snapshot that it waited for.
		if received, ok := request.ReceivedTimestampFrom(ctx); ok {
			began = received
		}
	}
	if s := r.usable(began, now, now); s != nil {
		return s, nil
	}
	return r.await(ctx, subject, began, now)
}

// usable returns the snapshot in use if it may judge a request now. began is when the request
// began, and asked when it called Acquire. A snapshot whose read began after asked is never too
// old for the request, however long the read took.
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

// overdue reports whether a request that asks at the given time must wait for another read,
// because no read is over that began as late as a regular one would have. That is so after the
// process did not run for a while. Without a bound in time, a process that goes on would judge by
// registrations from before its pause. A read that failed is enough (S11.9).
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
		// The read that Poke starts begins after the request did. If it fails, the next regular
		// read takes its place.
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

// wait returns a channel that is closed when the next read succeeds or fails. end is when a request that began at the given time stops waiting.
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
		// At the deadline itself, the server would answer with a time-out that does not say
		// why.
		deadline = deadline.Add(-min(deadline.Sub(began)/answeringShares, maxAnswering))
		if mayAnswer(r.mu.err) || deadline.Before(end) {
			end = deadline
		}
	}
	return r.mu.next, end
}
