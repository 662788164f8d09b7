package dispatch

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// A part of a request's time is reserved in shares. A share is a twentieth of the whole time, and
// at most maxShare. The reserve for the steps after the last webhook is so small that the timeout
// in a webhook's URL, in whole seconds rounded up, equals the timeout of the whole request (S3.3).
const (
	maxShare = 200 * time.Millisecond
	shares   = 20
	// maxVerdict bounds the time, at most a share, that is reserved for the error with the
	// webhook's name if a request times out.
	maxVerdict = 100 * time.Millisecond
	// writeShares are for validation and the write itself.
	writeShares = 2
	// passShares are for each later pass.
	passShares = 1
	// failShares are for a later webhook with failure policy Fail, and ignoreShares for one with
	// Ignore.
	failShares, ignoreShares = 2, 1
)

// budget divides a request's time. No other code does.
//
// A webhook gets its own timeout, from the beginning of its call, but never more than the remaining
// time of the request (S7.7). A webhook whose failure policy is Ignore must not cause a timeout of
// the request: its call ends early enough for the later webhooks of the pass, the later passes,
// validation, and the write. The end is determined by the request's deadline and the webhook's
// place in the order, so that any number of earlier webhooks that hang cannot use up the reserve.
//
// A webhook whose failure policy is Fail may use almost all of a request's time, because the
// request needs its answer. A moment is reserved: at the deadline itself the server gives up the
// request, and the error with the webhook's name must be written before.
type budget struct {
	// deadline is the request's deadline; zero when it has none.
	deadline time.Time
	// share is the unit of the reserve, and most the maximum of the whole reserve.
	share, most time.Duration
	// after is the number of shares reserved for the time after the pass.
	after int
}

// newBudget returns the budget of a pass over the request of ctx with the webhooks of a source.
func newBudget(ctx context.Context, source registration.Source, now time.Time) budget {
	deadline, ok := ctx.Deadline()
	if !ok {
		return budget{}
	}
	// The whole time must be the same in every pass. The handlers of k8s.io/apiserver store the
	// time when the request was received; without it, the remaining time counts as the whole.
	if received, ok := request.ReceivedTimestampFrom(ctx); ok {
		now = received
	}
	whole := max(deadline.Sub(now), 0)
	b := budget{deadline: deadline, share: min(whole/shares, maxShare), most: whole / 2, after: writeShares}
	// If plugins run in an order other than S9.3, webhooks with policy Ignore of a later plugin may
	// have no time left, and are ignored.
	b.after += passShares * source.CallsAfter()
	return b
}

// limit returns the context for a call of a webhook. later is the number of shares for the later
// webhooks of the pass. The Caller applies the webhook's own timeout.
func (b budget) limit(ctx context.Context, now time.Time, step *plan.Candidate, later int) (context.Context, context.CancelFunc) {
	if b.deadline.IsZero() || b.end(step, later).Sub(now) >= step.Timeout() {
		return ctx, func() {}
	}
	return b.until(ctx, step, later)
}

// until is limit for the patch in a webhook's answer, which has no timeout of its own.
func (b budget) until(ctx context.Context, step *plan.Candidate, later int) (context.Context, context.CancelFunc) {
	if b.deadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, b.end(step, later))
}

// end returns the end of a webhook's time.
func (b budget) end(step *plan.Candidate, later int) time.Time {
	kept := min(b.share, maxVerdict)
	if step.Forgives() {
		kept = min(b.share*time.Duration(b.after+later), b.most)
	}
	return b.deadline.Add(-kept)
}

// sharesOf returns the number of shares for webhooks that are called one after the other.
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
