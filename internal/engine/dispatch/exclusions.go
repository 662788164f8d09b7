package dispatch

import (
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
	"slices"
)

// exclusions records the effects of the administrator's exclusion rules in a run of webhooks
// (S23.9). All steps have the same rules.
func (r *run) exclusions() {
	x := r.steps[0].Exclusion
	if x == nil {
		return
	}
	t := r.trace
	if x.Skips() {
		t.Exclusions = append(t.Exclusions, Skipped(r.steps))
		return
	}
	var ignored, cut []registration.Origin
	for i := range t.Calls {
		if c := &t.Calls[i]; c.Ignored && c.FailurePolicy != registration.Ignore {
			ignored = append(ignored, c.Entry)
		}
	}
	for i := range t.Conditions {
		// The record of a condition's failure lacks the failure policy.
		if c := &t.Conditions[i]; c.Err != nil && r.policy(&c.Entry) != registration.Ignore {
			ignored = append(ignored, c.Entry)
		}
	}
	for i := range r.steps {
		step := &r.steps[i]
		if step.Timeout() < step.Entry.Timeout && called(t, &step.Entry.Origin) {
			cut = append(cut, step.Entry.Origin)
		}
	}
	t.Exclusions = appendExclusion(t.Exclusions, x.IgnoreFailures, ignored)
	t.Exclusions = appendExclusion(t.Exclusions, x.CapTimeout, cut)
}

// policy returns the failure policy of an entry of the run.
func (r *run) policy(o *registration.Origin) registration.FailurePolicy {
	for i := range r.steps {
		if r.steps[i].Entry.Origin == *o {
			return r.steps[i].Entry.FailurePolicy
		}
	}
	return ""
}

func called(t *trace.Run, o *registration.Origin) bool {
	return slices.ContainsFunc(t.Calls, func(c trace.Call) bool { return c.Entry == *o })
}

// excludedPolicies records the effects of the exclusion rules in a run of policies.
func excludedPolicies(t *trace.Run, judgements []plan.Judgement) {
	if len(judgements) == 0 || judgements[0].Candidate.Exclusion == nil {
		return
	}
	x := judgements[0].Candidate.Exclusion
	var skipped, ignored []registration.Origin
	for i := range judgements {
		j := &judgements[i]
		e := j.Candidate.Entry
		switch {
		case x.Skips():
			skipped = append(skipped, e.Origin)
		case e.FailurePolicy != registration.Ignore && forgave(j):
			ignored = append(ignored, e.Origin)
		}
	}
	t.Exclusions = appendExclusion(t.Exclusions, x.Skip, skipped)
	t.Exclusions = appendExclusion(t.Exclusions, x.IgnoreFailures, ignored)
}

// forgave reports whether a failure of the policy was ignored.
func forgave(j *plan.Judgement) bool {
	return slices.ContainsFunc(j.Consequences, func(c plan.Consequence) bool { return c.Forgiven })
}

func appendExclusion(list []trace.Exclusion, rule *exclusion.Rule, entries []registration.Origin) []trace.Exclusion {
	if rule == nil || len(entries) == 0 {
		return list
	}
	return append(list, trace.Exclusion{Rule: rule.Name, Effect: string(rule.Effect), Entries: entries})
}

// Skipped returns the record of candidates that a rule skips.
func Skipped(candidates []plan.Candidate) trace.Exclusion {
	rule := candidates[0].Exclusion.Skip
	x := trace.Exclusion{Rule: rule.Name, Effect: string(rule.Effect)}
	for i := range candidates {
		x.Entries = append(x.Entries, candidates[i].Entry.Origin)
	}
	return x
}
