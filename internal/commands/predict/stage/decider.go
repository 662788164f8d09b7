package stage

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
)

// Course summarizes the admission of an answered question.
func (q *Question) Course(a *Answer) rejection.Course {
	r := a.Trace.Verdicts(false)
	c := rejection.Course{Cost: uint64(r.Cost())}
	for call := range r.Calls() {
		if name := call.Webhook.String(); call.UID != "" && !slices.Contains(c.Called, name) {
			c.Called = append(c.Called, name)
		}
	}
	switch {
	case a.OK() || q.Rehearsal.Connected():
		return c
	case !q.Rehearsal.Authorized():
		c.By = []rejection.Decider{{Plugin: rejection.Authorization}}
	default:
		c.By = []rejection.Decider{{Plugin: rejection.API}}
	}
	if by := decidersOf(r); len(by) > 0 {
		c.By = by
	}
	return c
}

// decidersOf returns the deciders that rejected a request.
func decidersOf(r *trace.Record) []rejection.Decider {
	var list []rejection.Decider
	for act := range r.Rejections() {
		d := rejection.Decider{Plugin: act.Step.Plugin, Binding: act.Binding}
		switch act.Kind {
		case trace.ByPolicy:
			d.Policy = act.By
			if act.Index != nil {
				index := int64(*act.Index)
				d.Validation = &index
			}
		case trace.ByWebhook:
			d.Webhook = act.By
		}
		list = append(list, d)
	}
	return list
}
