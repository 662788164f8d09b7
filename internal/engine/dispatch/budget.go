package dispatch

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// A part of a request's time is reserved in shares. A share is a twentieth of the whole time,
// and maxShare at most. The reserve for the steps after the last hook is so small that the
// timeout in a hook's URL, in whole seconds rounded up, is that of the whole request (S3.3).
const (
	maxShare = 200 * time.Millisecond
	shares   = 20
	// maxVerdict bounds the time, at most a share, that is reserved for the error that names
	// the hook when a request times out.
	maxVerdict = 100 * time.Millisecond
	// writeShares are for validation and the write itself.
	writeShares = 2
	// passShares are for each later pass.
	passShares = 1
	// failShares are for a later hook with failure policy Fail, and ignoreShares for one with
	// Ignore.
	failShares, ignoreShares = 2, 1
)

// budget divides a request's time. No other code does.
//
// A hook gets its own timeout, from the moment it is called, but never more than the request
// has left (S7.7). A hook whose failure policy is Ignore must not be the reason why a request
// runs out of time: its call ends early enough for the later hooks of the pass, the later
// passes, validation, and the write. The request's deadline and the hook's place in the order
// determine this moment, so that any number of earlier hooks that hang cannot use up the
// reserve.
//
// A hook whose failure policy is Fail may use almost all of a request's time, because the
// request cannot go on without its answer. A moment is reserved: at the deadline itself the
// server gives the request up, and the error that names the hook must be written before.
type budget struct {
	// deadline is the request's deadline; zero when it has none.
	deadline time.Time
	// share is the unit of the reserve, and most the bound of the whole reserve.
	share, most time.Duration
	// after is how many shares are reserved for the time after the pass.
	after int
}

// newBudget returns the budget of a pass over the request of ctx, by the hooks of a source.
func newBudget(ctx context.Context, source registration.Source, now time.Time) budget {
	deadline, ok := ctx.Deadline()
	if !ok {
		return budget{}
	}
	// The whole time must be the same in every pass. The library's chain of handlers says when
	// the request began; without it, the time that is left now counts as the whole.
	if received, ok := request.ReceivedTimestampFrom(ctx); ok {
		now = received
	}
	whole := max(deadline.Sub(now), 0)
	b := budget{deadline: deadline, share: min(whole/shares, maxShare), most: whole / 2, after: writeShares}
	// If plugins run in another order than that of S9.3, hooks with policy Ignore of a later
	// plugin may find no time left, and are ignored.
	b.after += passShares * source.CallsAfter()
	return b
}

// limit returns the context for a call of a hook. later is how many shares the later hooks of
// the pass need. The Caller applies the hook's own timeout.
func (b budget) limit(ctx context.Context, now time.Time, step *plan.Candidate, later int) (context.Context, context.CancelFunc) {
	if b.deadline.IsZero() || b.end(step, later).Sub(now) >= step.Timeout() {
		return ctx, func() {}
	}
	return b.until(ctx, step, later)
}

// until is limit for the patch that a hook answered with, which has no timeout of its own.
func (b budget) until(ctx context.Context, step *plan.Candidate, later int) (context.Context, context.CancelFunc) {
	if b.deadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, b.end(step, later))
}

// end returns when the time of a hook ends.
func (b budget) end(step *plan.Candidate, later int) time.Time {
	kept := min(b.share, maxVerdict)
	if step.Forgives() {
		kept = min(b.share*time.Duration(b.after+later), b.most)
	}
	return b.deadline.Add(-kept)
}

// sharesOf returns how many shares hooks need that are called one after the other.
func sharesOf(steps []plan.Candidate) int {
	n := 0
	for i := range steps {
		if steps[i].Forgives() {
			n += ignoreShares
		} else {
			n += failShares
		}
	}
	return n
}
