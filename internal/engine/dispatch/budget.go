package dispatch

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// A request's time is kept back in shares, each a twentieth of the whole and
// maxShare at most. So little is kept for what comes after the last hook that
// the timeout told to a hook, in whole seconds rounded up, is that of the whole
// request (S3.3).
const (
	maxShare = 200 * time.Millisecond
	shares   = 20
	// maxVerdict bounds what is kept back, at most a share, to tell the user which
	// hook the request is rejected for when it was not done in time.
	maxVerdict = 100 * time.Millisecond
	// writeShares are for validation and the write itself.
	writeShares = 2
	// passShares are for each pass that comes after.
	passShares = 1
	// failShares are for a later hook that the request cannot do without,
	// ignoreShares for any other one.
	failShares, ignoreShares = 2, 1
)

// budget divides a request's time. It is the only place that does.
//
// A hook gets its own timeout, from the moment it is called, but never more than
// the request has left (S7.7). A hook whose failure policy is Ignore must not be
// the reason why a request runs out of time: its call ends early enough for what
// comes after it, which is the hooks later in the pass, the passes after this
// one, validation, and the write. That moment is fixed by the request's deadline
// and the hook's place in the order, whatever the hooks before it did, so that no
// number of hooks that hang can use up what is kept.
//
// A hook whose failure policy is Fail may use up a request's time, since without its
// answer there is nothing to go on with. All but a moment: at the deadline itself
// the server gives the request up, and the error that names the hook has to be
// written before.
type budget struct {
	// deadline is the request's own; zero when it has none.
	deadline time.Time
	// share is the unit of what is kept back, most the bound of it all.
	share, most time.Duration
	// after is how many shares are kept for what comes after the pass.
	after int
}

// newBudget divides the time of the request that ctx belongs to, seen from a pass
// of a source.
func newBudget(ctx context.Context, source registration.Source, now time.Time) budget {
	deadline, ok := ctx.Deadline()
	if !ok {
		return budget{}
	}
	// The time at the start is the same in every pass. The library's chain of handlers
	// says when the request began; without it, the time that is left now counts.
	if received, ok := request.ReceivedTimestampFrom(ctx); ok {
		now = received
	}
	whole := max(deadline.Sub(now), 0)
	b := budget{deadline: deadline, share: min(whole/shares, maxShare), most: whole / 2, after: writeShares}
	// In another order than that of S9.3, hooks with policy Ignore of a plugin that
	// was not expected to come may find no time left, and are ignored.
	b.after += passShares * source.CallsAfter()
	return b
}

// limit returns the context for a call of a hook. later is how many shares the
// hooks after it in the pass need. Keeping to the hook's own timeout is up to the
// Caller.
func (b budget) limit(ctx context.Context, now time.Time, step *plan.Candidate, later int) (context.Context, context.CancelFunc) {
	if b.deadline.IsZero() {
		return ctx, func() {}
	}
	kept := min(b.share, maxVerdict)
	if step.Forgives() {
		kept = min(b.share*time.Duration(b.after+later), b.most)
	}
	end := b.deadline.Add(-kept)
	if end.Sub(now) >= step.Timeout() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end)
}

// sharesOf is what hooks that are called one after the other need.
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
