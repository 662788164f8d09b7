package policy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	limits "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/internal/engine/condition"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Result is the result of a ValidatingAdmissionPolicy for a request with one param.
type Result struct {
	// Condition is the result of the match conditions. If one is false or they failed, no other
	// expression was evaluated.
	Condition condition.Result
	// Findings are the results of the validations, in order of precedence. A finding with Whole set
	// has the reason why some validations were not evaluated.
	Findings []Finding
	// Annotations are the values of audit annotations, in order.
	Annotations []Annotation
	// Cost is the cost of all expressions together, and Elapsed their duration.
	Cost    uint64
	Elapsed time.Duration
}

// Finding is the result of one validation.
type Finding struct {
	// Index is the index of the validation in the policy. Whole is set for a finding about the
	// whole evaluation; Index is then meaningless.
	Index int
	Whole bool
	// Violated reports whether the expression is false. Otherwise the expression is true, or could
	// not be evaluated because of Err. The failure policy applies to Err (S17.6).
	Violated bool
	Err      error
	// Message and Reason are for the user, if the validation is violated or failed.
	Message string
	Reason  metav1.StatusReason
	// Why explains why the validation is violated, if requested.
	Why expression.Why
	// Cost and Elapsed belong to the validation's expression.
	Cost    uint64
	Elapsed time.Duration
}

// Holds reports whether the validation is true.
func (f *Finding) Holds() bool { return !f.Violated && f.Err == nil }

// Annotation is the value of one audit annotation.
type Annotation struct {
	Key string
	// Value is empty if nothing is recorded (S17.19).
	Value string
	// Err is the evaluation error.
	Err     error
	Cost    uint64
	Elapsed time.Duration
}

// maxAnnotation bounds, in bytes, the recorded part of a value.
const maxAnnotation = 10 << 10

// Validate evaluates the policy.
func (p *Policy) Validate(ctx context.Context, in *Input) Result {
	start := time.Now()
	var r Result
	r.Condition = p.Match(ctx, in)
	r.Cost = r.Condition.Cost
	switch {
	case r.Condition.False != nil:
	case r.Condition.Err != nil:
		r.Findings = []Finding{{Whole: true, Err: r.Condition.Err, Message: r.Condition.Err.Error(), Reason: metav1.StatusReasonInvalid}}
	default:
		p.judge(ctx, in, &r)
	}
	r.Elapsed = time.Since(start)
	return r
}

// judge evaluates everything except the conditions.
func (p *Policy) judge(ctx context.Context, in *Input, r *Result) {
	run := p.Run(ctx, in)
	defer run.End()
	findings := make([]Finding, 0, len(p.Validations))
	violated := false
	for i := range p.Validations {
		v := &p.Validations[i]
		o, err := run.Eval(v.Holds)
		p.spent.validations[i].Note(o.Cost)
		r.spend(o.Cost)
		if err != nil {
			r.overflow(findings, o, err)
			// The budget is exhausted, so the messages are not evaluated.
			for j := range r.Findings {
				if f := &r.Findings[j]; f.Violated {
					f.Message = p.fallback(f.Index)
				}
			}
			return
		}
		f := Finding{Index: i, Cost: o.Cost, Elapsed: o.Elapsed, Reason: metav1.StatusReasonInvalid}
		switch {
		case o.Err != nil:
			f.Err, f.Message = o.Err, o.Err.Error()
		case o.Value != types.True:
			f.Violated, f.Reason, violated = true, v.Reason, true
		}
		findings = append(findings, f)
	}
	r.Findings = findings
	if violated {
		p.say(run.Continue(p.options(in, false)), r)
	}
	// The texts are in the result, and the next run has its own limit.
	run.End()
	p.annotate(ctx, in, r)
}

// overflow records that the budget was exhausted. Earlier violations remain (D49).
func (r *Result) overflow(findings []Finding, o expression.Outcome, err error) {
	r.Findings = []Finding{{Whole: true, Err: err, Message: err.Error(), Reason: metav1.StatusReasonInvalid, Elapsed: o.Elapsed}}
	for _, f := range findings {
		if f.Violated {
			r.Findings = append(r.Findings, f)
		}
	}
}

// spend adds the cost of an expression.
func (r *Result) spend(cost uint64) {
	// An expression of unknown cost has exhausted its budget.
	r.Cost += min(cost, expression.RunBudget)
}

// say sets the messages of violated validations (S17.9, D60).
func (p *Policy) say(run *expression.Run, r *Result) {
	for i := range r.Findings {
		f := &r.Findings[i]
		if !f.Violated {
			continue
		}
		v := &p.Validations[f.Index]
		if v.Says != nil {
			o, err := run.Eval(v.Says)
			p.spent.messages[f.Index].Note(o.Cost)
			r.spend(o.Cost)
			if err != nil {
				p.silence(r, err)
				return
			}
			f.Message = sentence(&o)
		}
		if f.Message == "" {
			f.Message = p.fallback(f.Index)
		}
	}
}

// silence records that the messages exhausted the budget. Every violation then has this error as
// its message, and remains a violation (S17.10, D49).
func (p *Policy) silence(r *Result, err error) {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Violated {
			f.Message, f.Reason = fmt.Sprintf("failed messageExpression: %s", err), metav1.StatusReasonInvalid
		}
	}
}

// sentence returns the message returned by an expression; empty if it is unusable.
func sentence(o *expression.Outcome) string {
	text, _ := value(o)
	text = strings.TrimSpace(text)
	if len(text) > limits.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(text, "\n") {
		return ""
	}
	return text
}

// fallback returns the message of a validation without a messageExpression, or whose
// messageExpression was not evaluated.
func (p *Policy) fallback(index int) string {
	v := &p.Validations[index]
	if message := strings.TrimSpace(v.Message); message != "" {
		return message
	}
	return "failed expression: " + strings.TrimSpace(v.Expression)
}

// annotate evaluates the audit annotations.
func (p *Policy) annotate(ctx context.Context, in *Input, r *Result) {
	if len(p.AuditAnnotations) == 0 {
		return
	}
	run := in.Request.NewRun(ctx, p.options(in, false))
	defer run.End()
	annotations := make([]Annotation, 0, len(p.AuditAnnotations))
	for i := range p.AuditAnnotations {
		a := &p.AuditAnnotations[i]
		o, err := run.Eval(a.Value)
		p.spent.annotations[i].Note(o.Cost)
		r.spend(o.Cost)
		if err != nil {
			r.overflow(r.Findings, o, err)
			return
		}
		out := Annotation{Key: a.Key, Cost: o.Cost, Elapsed: o.Elapsed, Err: o.Err}
		if text, ok := value(&o); ok {
			if out.Value = strings.TrimSpace(text); len(out.Value) > maxAnnotation {
				out.Value = out.Value[:maxAnnotation]
			}
		}
		annotations = append(annotations, out)
	}
	r.Annotations = annotations
}

// Why explains why a validation is false. Only a false validation has a part that makes it false.
func (p *Policy) Why(ctx context.Context, in *Input, index int) expression.Why {
	// A witness has already seen the evaluation that this one repeats.
	o := p.options(in, true)
	o.Witness = nil
	run := in.Request.NewRun(ctx, o)
	defer run.End()
	return run.Why(p.Validations[index].Holds)
}

// value returns the text of an outcome, if it is a text.
func value(o *expression.Outcome) (string, bool) {
	if o.Value == nil {
		return "", false
	}
	text, ok := o.Value.Value().(string)
	return text, ok
}
