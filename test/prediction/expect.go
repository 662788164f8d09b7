package prediction

import (
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
)

// Call is a received or expected review of a webhook.
type Call struct {
	// Webhook is the name of the webhook.
	Webhook string
	// As is the kind and the resource of the review, as in "autoscaling/v2 HorizontalPodAutoscaler,
	// horizontalpodautoscalers". The resource includes the subresource.
	As string
	// Version is the version of AdmissionReview: v1 or v1beta1.
	Version string
}

// String names the call in messages.
func (c Call) String() string {
	return fmt.Sprintf("%s as %s in a review of %s", c.Webhook, c.As, c.Version)
}

// Expectation lists the reviews and the verdict that follow from a plan.
type Expectation struct {
	// Mutating are the reviews of the mutating pass, in order; Again are their repetitions by reinvocation.
	// Validating has no order.
	Mutating, Again, Validating []Call
	// Ahead are reviews of the mutating pass that may be sent although the request is rejected before their
	// turn.
	Ahead []Call
	// Rejected reports whether admission rejects the request.
	Rejected bool
	// Unknown are webhooks whose call the plan does not predict.
	Unknown []string
}

// Expect follows the steps of a plan with the given answers of the webhooks.
func Expect(p *plan.Plan, answers map[string]Answer) Expectation {
	var e Expectation
	var mutating []*plan.Step
	for step := range p.Each() {
		if step.Pass != "mutating" {
			continue
		}
		switch step.Effect {
		case plan.Undecided:
			e.Unknown = append(e.Unknown, nameOf(step))
		case plan.Reject:
			e.Rejected = true
		case plan.Call:
			if e.Rejected {
				e.Ahead = appendAhead(e.Ahead, step)
				continue
			}
			e.Mutating = append(e.Mutating, callOf(step))
			mutating = append(mutating, step)
			e.Rejected = rejects(step, answers)
		}
	}
	if e.Rejected {
		return e
	}
	// A webhook that may be reinvoked is reinvoked if a later webhook has changed the object (S5.16).
	for i, step := range mutating {
		changed := slices.ContainsFunc(mutating[i+1:], func(later *plan.Step) bool {
			return p.Request.Operation != "DELETE" && answers[later.Entry.Name] == Annotate
		})
		if changed && step.MayReinvoke {
			e.Again = append(e.Again, callOf(step))
		}
	}
	for step := range p.Each() {
		if step.Pass != "validating" {
			continue
		}
		switch step.Effect {
		case plan.Undecided:
			e.Unknown = append(e.Unknown, nameOf(step))
		case plan.Reject:
			e.Rejected = true
		case plan.Call:
			e.Validating = append(e.Validating, callOf(step))
			e.Rejected = rejects(step, answers) || e.Rejected
		}
	}
	return e
}

// rejects reports whether the webhook of a step rejects the request.
func rejects(step *plan.Step, answers map[string]Answer) bool {
	switch answers[step.Entry.Name] {
	case Deny:
		return true
	case Fail:
		return step.FailurePolicy == "Fail"
	}
	return false
}

func appendAhead(ahead []Call, step *plan.Step) []Call {
	if step.MayGoAhead {
		ahead = append(ahead, callOf(step))
	}
	return ahead
}

func callOf(step *plan.Step) Call {
	resource := step.As.Resource
	if step.As.Subresource != "" {
		resource += "/" + step.As.Subresource
	}
	return Call{Webhook: step.Entry.Name, As: step.As.APIVersion + " " + step.As.Kind + ", " + resource, Version: step.ReviewVersion}
}

func nameOf(step *plan.Step) string {
	if step.Entry == nil {
		return step.Plugin
	}
	return step.Entry.Name
}

// Compare returns the differences between the expectation and the actual result. calls are the received
// reviews, in order of arrival; rejected reports whether the request was rejected. Reviews that may be sent
// ahead of their turn have no order, and are sent once more if the object changed (S5.26).
func (e *Expectation) Compare(calls []Call, rejected bool, ahead bool) []string {
	var differences []string
	calls = slices.DeleteFunc(slices.Clone(calls), func(c Call) bool { return slices.Contains(e.Unknown, c.Webhook) })
	if len(e.Unknown) == 0 && rejected != e.Rejected {
		differences = append(differences, fmt.Sprintf("the request is rejected: %t, expected %t", rejected, e.Rejected))
	}
	want := slices.Concat(e.Mutating, e.Again, e.Validating)
	for _, c := range want {
		i := slices.Index(calls, c)
		if i < 0 && rejected && len(e.Unknown) > 0 {
			// An unknown webhook may have rejected the request.
			continue
		}
		if i < 0 {
			differences = append(differences, fmt.Sprintf("not called: %s", c))
			continue
		}
		calls = slices.Delete(calls, i, i+1)
	}
	for _, c := range calls {
		if len(e.Unknown) > 0 && slices.Contains(e.Mutating, c) {
			// An unknown webhook may have changed the object.
			continue
		}
		if ahead && (slices.Contains(e.Ahead, c) || slices.Contains(e.Mutating, c)) {
			continue
		}
		differences = append(differences, fmt.Sprintf("called, and not expected: %s", c))
	}
	return differences
}

// inOrder reports whether the calls of the mutating pass arrived in the expected order.
func (e *Expectation) inOrder(calls []Call) bool {
	want := slices.Concat(e.Mutating, e.Again)
	var got []Call
	for _, c := range calls {
		if slices.Contains(want, c) && !slices.Contains(e.Validating, c) {
			got = append(got, c)
		}
	}
	return slices.Equal(want, got)
}
