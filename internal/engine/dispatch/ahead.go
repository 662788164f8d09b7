package dispatch

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// ahead calls mutating webhooks before their turn, with the current object. If the object has not
// changed when the turn comes, the answer is the same as in turn, and counts. Otherwise the answer
// is discarded, and the webhook is called again (S5.28). Only webhooks that declare additional
// calls harmless, by sideEffects None and reinvocationPolicy IfNeeded, are called ahead.
//
// The verdict on a request is the same with and without calls ahead.
type ahead struct {
	run *run
	// decisions has the decision of each step for the object of one generation.
	decisions []decision
	flights   []flight
}

// flight is a call ahead of turn.
type flight struct {
	generation int
	cancel     context.CancelFunc
	done       chan struct{}
	// The fields below are written before done is closed.
	call     trace.Call
	response *review.Response
	status   *apierrors.StatusError
}

// consider decides whether the webhook of a step applies to the current object. The decision is
// cached until the object changes.
func (a *ahead) consider(ctx context.Context, i int) *decision {
	d := &a.decisions[i]
	if !d.made || d.generation != a.run.objects.Generation() {
		*d = a.run.decide(ctx, &a.run.steps[i])
		d.made, d.generation = true, a.run.objects.Generation()
	}
	return d
}

// launch starts the calls that can go ahead during the call of step i, which is prepared. wanted
// reports whether this round considers a step at all.
func (a *ahead) launch(ctx context.Context, i int, wanted func(*plan.Candidate) bool) {
	r := a.run
	if r.options.Serial {
		return
	}
	last := len(r.steps) - 1
	for last > i && !r.steps[last].MayGoAhead() {
		last--
	}
	if !a.soft(i) && r.rejects(&r.steps[i]) {
		// The webhook is certain to reject the request, so later steps do not get their turn.
		return
	}
	quiet := 1.0
	for j := i; j <= last; j++ {
		step := &r.steps[j]
		if j > i {
			if r.objects.ConvertsTo(step.Kind) {
				// Converting the object may change it. The conversion has to wait for this step's
				// turn, and so do the later steps.
				return
			}
			d := a.consider(ctx, j)
			if d.err != nil {
				return
			}
			if !d.applies || !wanted(step) {
				continue
			}
			if !a.soft(j) && r.rejects(step) {
				return
			}
			if step.MayGoAhead() && !a.flying(j) && !a.fly(ctx, j) {
				return
			}
		}
		if a.soft(j) {
			continue
		}
		if quiet *= r.forecast.quiet(r.habit(step)); quiet < quietEnough {
			return
		}
	}
}

// soft reports whether the webhook of a step is not enforced, so that it neither rejects requests
// nor changes objects. The step must have been considered.
func (a *ahead) soft(i int) bool { return a.decisions[i].enforced.Mode.Soft() }

// rejects reports whether the webhook of an applicable step is certain to reject the request,
// unless the object changes before its turn.
func (r *run) rejects(step *plan.Candidate) bool {
	if _, err := r.objects.As(step.Kind); err != nil {
		return true
	}
	effect, _ := step.Outcome(r.request)
	return effect == plan.Reject
}

// flying reports whether a call of a step's webhook is in flight for the current object.
func (a *ahead) flying(j int) bool {
	return a.flights != nil && a.flights[j].done != nil && a.flights[j].generation == a.run.objects.Generation()
}

// fly starts one call, and reports whether more may follow.
func (a *ahead) fly(ctx context.Context, j int) bool {
	r := a.run
	step := &r.steps[j]
	if !r.forecast.take() {
		return false
	}
	ready, err := r.prepare(step)
	if err != nil {
		// The call in turn fails with the same error, and reports it.
		r.forecast.giveBack()
		return false
	}
	if a.flights == nil {
		a.flights = make([]flight, len(r.steps))
	}
	f := &a.flights[j]
	if f.done != nil {
		// An earlier answer, for an object that has since changed.
		a.discard(f, trace.Superseded)
	}
	ctx, cancel := context.WithCancel(ctx)
	*f = flight{generation: r.objects.Generation(), cancel: cancel, done: make(chan struct{}), call: r.record(step, 0)}
	later := sharesOf(r.steps[j+1:])
	go func() {
		defer close(f.done)
		f.response, f.status = r.ask(ctx, ready, &f.call, later)
	}()
	return true
}

// take returns the answer of a call ahead if it counts, and writes the record of the call to c. ok
// is false if the webhook has to be called in turn.
func (a *ahead) take(j int, c *trace.Call) (response *review.Response, status *apierrors.StatusError, ok bool) {
	if a.flights == nil || a.flights[j].done == nil {
		return nil, nil, false
	}
	f := &a.flights[j]
	if f.generation != a.run.objects.Generation() {
		a.discard(f, trace.Superseded)
		c.Turn = trace.Again
		return nil, nil, false
	}
	<-f.done
	f.cancel()
	matched := c.Matched
	*c = f.call
	c.Matched, c.Turn = matched, trace.Ahead
	f.done = nil
	a.run.forecast.giveBack()
	return f.response, f.status, true
}

// discard cancels a call whose answer is not used, and records it.
func (a *ahead) discard(f *flight, fate trace.Fate) {
	f.cancel()
	<-f.done
	f.call.Turn, f.call.Fate = trace.Ahead, fate
	a.run.trace.Discarded = append(a.run.trace.Discarded, f.call)
	f.done = nil
}

// land discards the calls whose turn did not come.
func (a *ahead) land() {
	for i := range a.flights {
		if f := &a.flights[i]; f.done != nil {
			f.cancel()
		}
	}
	for i := range a.flights {
		if f := &a.flights[i]; f.done != nil {
			a.discard(f, trace.NotReached)
		}
	}
}
