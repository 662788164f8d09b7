package dispatch

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// mutate calls the applicable webhooks one after the other, each with the object after all earlier
// webhooks. The first rejection ends the pass (S5.13).
func (r *run) mutate(ctx context.Context) error {
	again := r.a.GetReinvocationContext()
	memory := remembered(again, r.options.Source.Descriptor().Plugin)
	r.share = &memory.share
	defer r.share.ReleaseAfter(ctx)
	wanted := func(*plan.Candidate) bool { return true }
	if again.IsReinvoke() {
		if err := memory.resume(r.objects); err != nil {
			return apierrors.NewInternalError(err)
		}
		wanted = func(step *plan.Candidate) bool { return memory.isMarked(identityOf(&step.Entry.Origin)) }
	}
	ahead := &ahead{run: r, decisions: make([]decision, len(r.steps))}
	defer ahead.land()
	for i := range r.steps {
		step := &r.steps[i]
		// The second pass also decides about webhooks that it does not call again, because a test
		// that fails with an error rejects the request (S2.36).
		d := ahead.consider(ctx, i)
		r.note(d)
		if d.err != nil {
			return d.err
		}
		if !d.applies || !wanted(step) {
			continue
		}
		soft := d.enforced.Mode.Soft()
		to, err := r.prepare(step)
		switch {
		case err != nil && soft:
			r.trace.Calls = append(r.trace.Calls, *r.sparedBefore(step, d.enforced, err))
			continue
		case err != nil:
			return err
		}
		ahead.launch(ctx, i, wanted)
		c, err := r.call(ctx, i, to, d.enforced, ahead)
		if !soft {
			// A webhook that is not enforced has changed nothing, and is not called again (S28.7).
			memory.called(identityOf(&step.Entry.Origin), step.Entry.MayReinvoke, c.Mutated)
			r.forecast.observe(r.habit(step), c.Mutated || err != nil)
		}
		if c.Mutated {
			again.SetShouldReinvoke()
		}
		if err != nil {
			return err
		}
		if (c.Ignored || soft) && ctx.Err() != nil {
			// The request has timed out, so later webhooks are not called (S7.8).
			return late()
		}
	}
	if err := r.settle(); err != nil {
		return err
	}
	if again.IsReinvoke() {
		return nil
	}
	if err := memory.keep(r.objects); err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// call calls the webhook of step i, unless a call ahead already has its answer, and uses the
// answer. It returns the record, and the rejection of the request, if any.
func (r *run) call(ctx context.Context, i int, to ready, e plan.Enforced, ahead *ahead) (*trace.Call, error) {
	r.trace.Calls = append(r.trace.Calls, r.record(to.step, len(r.trace.Calls)))
	c := &r.trace.Calls[len(r.trace.Calls)-1]
	response, status, ok := ahead.take(i, c)
	later := sharesOf(r.steps[i+1:])
	if !ok {
		response, status = r.ask(ctx, to, c, later)
	}
	c.Enforcement = trace.Enforcement(e)
	if status == nil && len(response.Patch) > 0 {
		status = r.patch(ctx, to, c, response, later)
	}
	if status = judge(to.step, c, status); status != nil {
		return c, status
	}
	return c, nil
}

// settle updates the request's own object. It can fail only because of a change by a webhook, so
// the error names the last webhook that changed the object.
func (r *run) settle() error {
	err := r.objects.Settle()
	if err == nil {
		return nil
	}
	for i := len(r.trace.Calls) - 1; i >= 0; i-- {
		if c := &r.trace.Calls[i]; c.Mutated {
			return apierrors.NewInternalError(fmt.Errorf("converting the object as left by admission webhook %q: %w", c.Entry.Name, err))
		}
	}
	return apierrors.NewInternalError(err)
}
