package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// patch applies the patch of a response to the object of to, and makes the result the newest
// object. If the patch cannot be applied, it returns the rejection by the call, and the object
// stays unchanged (S5.12). later is the parameter of budget.limit: a patch gets as much of the
// request's time as a call (S5.34).
func (r *run) patch(ctx context.Context, to ready, c *trace.Call, response *review.Response, later int) (status *apierrors.StatusError) {
	ctx, cancel := r.budget.until(ctx, to.step, later)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			status = panicked(to.step, c, p)
		}
	}()
	hook := c.Entry.Name
	if err := r.share.Take(review.Weight(response.Patch)); err != nil {
		return fail(to.step, c, call.NoRoom, err)
	}
	p, err := review.DecodePatch(response.Patch)
	switch {
	case err != nil:
		return fail(to.step, c, call.PatchUndecodable, err)
	case len(p) == 0:
		return nil
	case !to.form.HasObject():
		return refuse(c, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", hook)))
	case response.PatchType != review.PatchTypeJSONPatch:
		return fail(to.step, c, call.PatchType, fmt.Errorf("unsupported patch type %q", response.PatchType))
	}
	set, form := r.objects, to.form
	if c.Enforcement.Mode.Soft() {
		// A webhook that is not enforced changes a copy, which is then discarded (S28.7).
		if set, err = r.objects.Fork(to.step.Kind); err == nil {
			form, err = set.As(to.step.Kind)
		}
		if err != nil {
			return refuse(c, apierrors.NewInternalError(err))
		}
	}
	started := time.Now()
	changed, edits, err := set.Apply(ctx, r.share, form, p)
	if kind := (*objects.KindError)(nil); errors.As(err, &kind) {
		return refuse(c, apierrors.NewInternalError(fmt.Errorf("admission webhook %q returned a patch that is not allowed: %w", hook, err)))
	}
	switch {
	case err == nil:
	case errors.As(err, new(*call.NoRoomError)):
		return fail(to.step, c, call.NoRoom, err)
	default:
		failure := call.Failed(to.step.Entry.Entry, call.PatchFailed, err)
		failure.Elapsed = time.Since(started)
		if deadline, limited := ctx.Deadline(); limited {
			failure.Limit = max(deadline.Sub(started), 0)
		}
		failure.ClientGone = errors.Is(err, context.Canceled)
		failure.TimedOut = errors.Is(err, context.DeadlineExceeded)
		failure.RequestLimited = failure.TimedOut
		return failWith(c, failure)
	}
	switch c.Edits = edits; {
	case !c.Enforcement.Mode.Soft():
		c.Patch, c.Mutated = response.Patch, changed
	case changed:
		c.WouldPatch = response.Patch
	}
	return nil
}
