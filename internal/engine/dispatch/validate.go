package dispatch

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// validate calls all webhooks that apply concurrently, and waits for all of them. Selectors and
// conditions are evaluated first: after an error there, no webhook is called (S6.1).
func (r *run) validate(ctx context.Context) error {
	var (
		chosen []ready
		modes  []plan.Enforced
	)
	for i := range r.steps {
		step := &r.steps[i]
		d := r.decide(ctx, step)
		r.note(&d)
		if d.err != nil {
			return d.err
		}
		if !d.applies {
			continue
		}
		to, err := r.prepare(step)
		switch {
		case err != nil && d.enforced.Mode.Soft():
			r.trace.Calls = append(r.trace.Calls, *r.sparedBefore(step, d.enforced, err))
			continue
		case err != nil:
			return err
		}
		chosen, modes = append(chosen, to), append(modes, d.enforced)
	}
	if len(chosen) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return late()
	}

	r.share = &call.Share{}
	defer r.share.ReleaseAfter(ctx)
	calls := make([]trace.Call, len(chosen))
	statuses := make([]*apierrors.StatusError, len(chosen))
	for i, to := range chosen {
		calls[i] = r.record(to.step, i)
		calls[i].Enforcement = trace.Enforcement(modes[i])
	}
	// The record already has the webhooks that are not enforced and could not be called.
	before := len(r.trace.Calls)
	r.trace.Calls = append(r.trace.Calls, calls...)
	calls = r.trace.Calls[before:]
	var rest sync.WaitGroup
	for i := 1; i < len(chosen); i++ {
		rest.Go(func() { _, statuses[i] = r.ask(ctx, chosen[i], &calls[i], 0) })
	}
	_, statuses[0] = r.ask(ctx, chosen[0], &calls[0], 0)
	rest.Wait()

	var first *apierrors.StatusError
	for i := range calls {
		status := judge(chosen[i].step, &calls[i], statuses[i])
		switch {
		case status == nil:
		case first == nil:
			first = status
		default:
			addCause(first, status)
		}
	}
	if first == nil {
		return nil
	}
	return first
}

// addCause adds a further rejection to the causes of the first one.
func addCause(first, further *apierrors.StatusError) {
	if first.ErrStatus.Details == nil {
		first.ErrStatus.Details = &metav1.StatusDetails{}
	}
	d := first.ErrStatus.Details
	d.Causes = append(d.Causes, metav1.StatusCause{Type: trace.DeniedCause, Message: further.ErrStatus.Message})
}
