package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// decision is the decision whether a webhook is called for the object of one generation.
type decision struct {
	made       bool
	generation int
	applies    bool
	// err is an API status that rejects the request.
	err error
	// enforced is the enforcement of the webhook.
	enforced plan.Enforced
	// condition, skip and spared are for the record.
	condition *trace.Condition
	skip      *trace.Skip
	spared    *trace.Call
}

// decide decides with package plan whether the webhook of a step is called for the current object,
// and prepares the record.
func (r *run) decide(ctx context.Context, step *plan.Candidate) decision {
	found := step.Decide(ctx, r.request, &r.input)
	d := decision{applies: found.Applies, err: found.Err, enforced: found.Enforced}
	if found.Spared != nil {
		d.spared = r.sparedBefore(step, found.Enforced, found.Spared)
	}
	if found.Evaluated {
		d.condition = &trace.Condition{
			Entry:    step.Entry.Origin,
			Latency:  found.Elapsed,
			Errors:   found.ConditionErrors,
			Excluded: !d.applies && d.err == nil,
			Err:      found.Forgiven,
		}
	}
	if r.options.Skips && !d.applies && d.err == nil && d.spared == nil {
		d.skip = &trace.Skip{Entry: step.Entry.Origin, Code: found.Reason.Code.String(), Reason: found.Reason.String()}
		if found.Forgiven != nil {
			d.skip.Reason = fmt.Sprintf("its match conditions failed, and failurePolicy is Ignore: %v", found.Forgiven)
		}
	}
	return d
}

// note adds a decision to the record.
func (r *run) note(d *decision) {
	if d.condition != nil {
		r.trace.Conditions = append(r.trace.Conditions, *d.condition)
	}
	if d.skip != nil {
		r.trace.Skips = append(r.trace.Skips, *d.skip)
	}
	if d.spared != nil {
		r.trace.Calls = append(r.trace.Calls, *d.spared)
	}
}

// sparedBefore returns the record of a webhook that is not enforced and is not called because of an
// error. The error would reject the request if the webhook were enforced.
func (r *run) sparedBefore(step *plan.Candidate, e plan.Enforced, err error) *trace.Call {
	c := r.record(step, len(r.trace.Calls))
	c.Start, c.Verdict, c.Err, c.Enforcement = time.Now(), trace.Refused, err, trace.Enforcement(e)
	return &c
}
