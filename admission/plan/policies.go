package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/engine/policy"
)

// PolicyEvaluation is one evaluation of a policy for a request.
type PolicyEvaluation struct {
	// Param names the param, as namespace/name; empty if there is none.
	Param string `json:"param,omitempty"`
	// Bindings are the names of the bindings that lead to the evaluation.
	Bindings []string `json:"bindings"`
	// Verdict is admitted, excluded if a match condition is false, violated or failed. For a
	// mutating policy, it is excluded, failed, or the verdict of a mutation.
	Verdict string `json:"verdict"`
	// FalseCondition is the name of the match condition that is false.
	FalseCondition string `json:"falseCondition,omitempty"`
	// Cost is the cost of all expressions together, in CEL cost units. CostLimit is its limit.
	Cost      int64 `json:"cost"`
	CostLimit int64 `json:"costLimit"`
	// Validations are the evaluated validations.
	Validations []PolicyValidation `json:"validations,omitempty"`
	// AuditAnnotations are the values that would be recorded, by key.
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
	// Mutations are the evaluated mutations of a mutating policy.
	Mutations []PolicyMutation `json:"mutations,omitempty"`
}

// PolicyMutation is the evaluation of one mutation.
type PolicyMutation struct {
	// Index is its index in the policy, Type is ApplyConfiguration or JSONPatch.
	Index int    `json:"index"`
	Type  string `json:"type"`
	// Verdict is changed, unchanged, failed, spared if the object would be changed but the binding
	// is not enforced, or unknown if the result cannot be predicted.
	Verdict string `json:"verdict"`
	// Patch is the change returned by the expression, as JSON patch operations; the fields of an
	// apply configuration have the op merge.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Message is the error, or the unknown fact.
	Message string `json:"message,omitempty"`
	// Cost is the cost of the expression, in CEL cost units, and CostLimit its limit.
	Cost      int64 `json:"cost"`
	CostLimit int64 `json:"costLimit"`
}

// PolicyValidation is the evaluation of one validation.
type PolicyValidation struct {
	// Index is its index in the policy; absent for an element that represents all validations that
	// were not evaluated.
	Index *int `json:"index,omitempty"`
	// Verdict is holds, violated or failed.
	Verdict string `json:"verdict"`
	// Expression is its source in CEL.
	Expression string `json:"expression,omitempty"`
	// Because is the part of the expression that makes it false, unless that is the whole
	// expression.
	Because string `json:"because,omitempty"`
	// Values are the values of the parts of a false expression, if they depend on the objects of
	// the request only.
	Values []PartValue `json:"values,omitempty"`
	// Message is the message for the user.
	Message string `json:"message,omitempty"`
	// Cost is the cost of the expression, in CEL cost units, and CostLimit its limit.
	Cost      int64 `json:"cost"`
	CostLimit int64 `json:"costLimit"`
}

// PartValue is the value of a part of an expression.
type PartValue struct {
	// Expression is the part.
	Expression string `json:"expression"`
	// Value is its value in JSON. A long value is truncated.
	Value string `json:"value"`
}

// PolicyConsequence is one binding's reaction to one violation or error.
type PolicyConsequence struct {
	// Binding is absent for an error of the policy itself.
	Binding string `json:"binding,omitempty"`
	// Param names the param, as namespace/name.
	Param string `json:"param,omitempty"`
	// Code identifies the violation or error for programs, and Message describes it for people.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Reason is the reason in the status of the rejection.
	Reason string `json:"reason,omitempty"`
	// Actions are the validationActions of the binding.
	Actions []string `json:"actions,omitempty"`
	// Denied reports whether the consequence rejects the request. Ignored reports whether it has no
	// effect because the failure policy is Ignore.
	Denied  bool `json:"denied,omitempty"`
	Ignored bool `json:"ignored,omitempty"`
	// Enforcement is present if the binding or the policy is not enforced. Spared reports whether
	// the request would be rejected if they were enforced (S28).
	Enforcement *Enforced `json:"enforcement,omitempty"`
	Spared      bool      `json:"spared,omitempty"`
}

// SkippedBinding is a binding that does not apply.
type SkippedBinding struct {
	// Binding is its name, and Reason why it does not apply.
	Binding string      `json:"binding"`
	Reason  Explanation `json:"reason"`
}

// policies adds the policies of a plugin. All of them are evaluated, even if one rejects the
// request (S17.3). Mutating policies change the object for all later steps.
func (b *builder) policies(l *Link) {
	candidates := Candidates(b.snapshot, l.Source.Source, b.request, b.equivalents)
	if b.over {
		if b.all {
			b.inOrder(l, candidates, func(i int) { b.skip(l, candidates[i].Entry, Reason{Code: NotReached}) })
		}
		return
	}
	var (
		judgements []Judgement
		err        error
		denied     = Denied
	)
	if l.Source.Pass == registration.MutatingPass {
		judgements, err = Mutate(b.ctx, candidates, b.request, b.equivalents, b.input, nil, b.all)
		denied = Refused
	} else {
		judgements, err = Judge(b.ctx, candidates, b.request, b.equivalents, b.input, b.all)
	}
	first := len(b.plan.Steps)
	values := NewValues(b.request, b.input)
	add := func(i int) {
		if i < len(judgements) {
			b.judged(l, &judgements[i], values)
		}
	}
	if b.all {
		b.inOrder(l, candidates, add)
	} else {
		for i := range candidates {
			add(i)
		}
	}
	if err != nil {
		// The namespace for policies is missing, or cannot be read.
		step := Step{
			Pass: l.Source.Pass.String(), Plugin: l.Plugin, Effect: Reject,
			Reason: &Explanation{Code: NamespaceNotFound.String(), Message: oneLine(err)},
		}
		if errors.Is(err, ErrUnknown) {
			step.Effect, step.Reason.Code = Undecided, Unknown.String()
		} else {
			b.reject(err.Error())
		}
		b.plan.Steps = append(b.plan.Steps, step)
		return
	}
	if texts, reason := denied(judgements); texts != nil {
		denial := b.request.PolicyDenial
		if l.Source.Pass == registration.MutatingPass {
			denial = b.request.MutationDenial
		}
		why := b.unsure(true)
		if why == "" {
			b.reject(denial(b.input.Objects.Newest(), reason, texts).Error())
			return
		}
		for i := range b.plan.Steps[first:] {
			if s := &b.plan.Steps[first+i]; s.Effect == Reject {
				s.Effect, s.Reason = Undecided, &Explanation{Code: Unknown.String(), Message: unknown + b.likely(s.Reason.Message+why)}
			}
		}
	}
}

// judged adds the step for the judgement of a policy.
func (b *builder) judged(l *Link, j *Judgement, values *Values) {
	step := b.step(l, j.Candidate)
	step.Effect = Evaluate
	for i := range j.Evaluations {
		step.Evaluations = append(step.Evaluations, b.evaluation(j, &j.Evaluations[i], values))
	}
	for i := range j.Consequences {
		step.Consequences = append(step.Consequences, consequence(&j.Consequences[i]))
	}
	if b.all {
		step.Bindings = j.skippedBindings()
	}
	switch {
	case j.Unknown || j.unknownBinding() != nil:
		reason := j.Reason
		if !j.Unknown {
			reason = *j.unknownBinding()
		}
		step.Effect, step.Reason = Undecided, &Explanation{reason.Code.String(), reason.String()}
	case len(j.Consequences) > 0:
		step.Effect, step.Reason = Ignored, j.explanation()
		switch {
		case j.denies() >= 0:
			step.Effect = Reject
		case slices.ContainsFunc(j.Consequences, func(c Consequence) bool { return !c.Forgiven }):
			// The consequence is a warning or an audit record.
			step.Effect = Evaluate
		}
	case len(j.Evaluations) == 0 || j.excluded():
		reason := j.Skipped()
		if !b.all && reason.Code != ExclusionRule {
			return
		}
		step.Effect, step.Reason = Skip, &Explanation{reason.Code.String(), reason.String()}
		if j.Applies && len(j.Evaluations) > 0 {
			reason = Reason{Code: ConditionFalse, entry: j.Candidate.Entry, condition: j.Evaluations[0].Condition.False}
			step.Reason = &Explanation{reason.Code.String(), reason.String()}
		}
	}
	b.plan.Steps = append(b.plan.Steps, step)
}

// unknownBinding returns the reason of the first group that is unknown.
func (j *Judgement) unknownBinding() *Reason {
	i := slices.IndexFunc(j.Groups, func(g MatchedGroup) bool { return g.Unknown })
	if i < 0 {
		return nil
	}
	return &j.Groups[i].Reason
}

// excluded reports whether a match condition is false in all evaluations.
func (j *Judgement) excluded() bool {
	return !slices.ContainsFunc(j.Evaluations, func(e Evaluation) bool { return e.Condition.False == nil })
}

// denies returns the index of the first consequence that rejects the request; -1 if none does.
func (j *Judgement) denies() int {
	return slices.IndexFunc(j.Consequences, func(c Consequence) bool { return c.Denies })
}

// explanation returns the code and message of the first rejection, or else of the first
// consequence.
func (j *Judgement) explanation() *Explanation {
	first := j.denies()
	c := &j.Consequences[max(first, 0)]
	text := c.Text()
	if first < 0 {
		text = c.Message
		if c.Binding != nil {
			text = "binding " + c.Binding.Configuration + ": " + text
		}
	}
	return &Explanation{c.Code.String(), strings.ReplaceAll(text, "\n", " ")}
}

// skippedBindings returns the bindings that do not apply.
func (j *Judgement) skippedBindings() []SkippedBinding {
	var list []SkippedBinding
	for i := range j.Groups {
		g := &j.Groups[i]
		reason := g.Reason
		switch {
		case g.Err != nil || g.Unknown:
			continue
		case g.Applies && len(g.Params) == 0:
			reason = Reason{Code: NoParams}
		case g.Applies:
			continue
		}
		for _, binding := range g.Bindings {
			list = append(list, SkippedBinding{binding.Configuration, Explanation{reason.Code.String(), reason.String()}})
		}
	}
	return list
}

func (b *builder) evaluation(j *Judgement, e *Evaluation, values *Values) PolicyEvaluation {
	out := PolicyEvaluation{Param: e.Param.text(), Verdict: "admitted", Cost: int64(e.Cost), CostLimit: policy.CostLimit}
	for _, g := range e.Groups {
		for _, binding := range g.Bindings {
			out.Bindings = append(out.Bindings, binding.Configuration)
		}
	}
	if e.Condition.False != nil {
		out.Verdict, out.FalseCondition = "excluded", e.Condition.False.Name
	}
	for i := range e.Findings {
		f := &e.Findings[i]
		v := PolicyValidation{Verdict: "holds", Message: f.Message, Cost: int64(f.Cost), CostLimit: policy.ExpressionCostLimit}
		if !f.Whole {
			v.Index, v.Expression = &f.Index, j.Candidate.Entry.Policy.Validations[f.Index].Expression
		}
		switch {
		case f.Violated:
			v.Verdict, out.Verdict = "violated", "violated"
			why := j.why(b.ctx, b.request, e, f.Index, values)
			v.Because = why.Part
			for _, part := range why.Values {
				v.Values = append(v.Values, PartValue(part))
			}
		case f.Err != nil:
			v.Verdict = "failed"
			if out.Verdict != "violated" {
				out.Verdict = "failed"
			}
		}
		out.Validations = append(out.Validations, v)
	}
	if e.Binding != nil {
		out.Bindings = []string{e.Binding.Configuration}
	}
	out.mutations(j, e)
	for _, a := range e.Annotations {
		if a.Value != "" {
			if out.AuditAnnotations == nil {
				out.AuditAnnotations = map[string]string{}
			}
			out.AuditAnnotations[a.Key] = a.Value
		}
	}
	return out
}

// mutations adds the mutations of an evaluation, and sets its verdict.
func (out *PolicyEvaluation) mutations(j *Judgement, e *Evaluation) {
	if e.Binding == nil {
		return
	}
	if e.Failure != nil || e.Condition.Err != nil {
		out.Verdict = "failed"
	} else if e.Condition.False == nil {
		out.Verdict = "unchanged"
	}
	for i := range e.Mutations {
		m := &e.Mutations[i]
		one := PolicyMutation{
			Index: m.Index, Type: string(j.Candidate.Entry.Policy.Mutations[m.Index].Type()), Verdict: "unchanged", Patch: m.Patch(),
			Cost: int64(m.Cost), CostLimit: policy.ExpressionCostLimit,
		}
		switch {
		case m.Changed && e.Enforced.Mode.Soft():
			one.Verdict = "spared"
		case errors.Is(m.Err, ErrUnknown):
			one.Verdict, one.Message = "unknown", m.Err.Error()
		case m.Err != nil:
			one.Verdict, one.Message = "failed", m.Err.Error()
		case m.Changed:
			one.Verdict = "changed"
		}
		if out.Verdict == "unchanged" || one.Verdict == "failed" {
			out.Verdict = one.Verdict
		}
		out.Mutations = append(out.Mutations, one)
	}
}

// why returns the reason why a validation is false; the zero Why if it cannot be determined.
func (j *Judgement) why(ctx context.Context, r *Request, e *Evaluation, index int, values *Values) expression.Why {
	if values.ReadNamespace(ctx) != nil {
		return expression.Why{}
	}
	c := j.Candidate
	request, err := values.Of(c.Kind)
	if err != nil {
		return expression.Why{}
	}
	return c.Entry.Policy.Why(ctx, &policy.Input{Request: request, Own: r.Resource, Matched: c.Resource, Params: e.Param.Object}, index)
}

// maxWhys is the maximum number of violations of a request that are explained.
const maxWhys = 4

// Explain sets the explanations of the violations that reject a request.
func (in *Input) Explain(ctx context.Context, r *Request, judgements []Judgement) {
	values := NewValues(r, in)
	n := 0
	for i := range judgements {
		j := &judgements[i]
		for k := range j.Evaluations {
			e := &j.Evaluations[k]
			for m := range e.Findings {
				f := &e.Findings[m]
				if n == maxWhys || !f.Violated || !slices.ContainsFunc(j.Consequences, func(c Consequence) bool { return c.Finding == f && c.Denies }) {
					continue
				}
				f.Why = j.why(ctx, r, e, f.Index, values)
				n++
			}
		}
	}
}

func consequence(c *Consequence) PolicyConsequence {
	out := PolicyConsequence{Param: c.Param.text(), Code: c.Code.String(), Message: c.Message, Reason: string(c.Reason), Denied: c.Denies, Ignored: c.Forgiven, Enforcement: c.Enforced.applied(), Spared: c.Spared}
	if c.Binding != nil {
		out.Binding = c.Binding.Configuration
	}
	for _, action := range c.Actions {
		out.Actions = append(out.Actions, string(action))
	}
	return out
}

// text returns the name of the param; empty if there is none.
func (p *Param) text() string {
	switch {
	case p == nil || p.Object == nil:
		return ""
	case p.Namespace == "":
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

// Details returns one line for each violation and error of a policy, for each of their
// consequences, and for each binding that does not apply; none for other steps.
func (s *Step) Details() []string {
	var list []string
	for _, text := range s.Order {
		list = append(list, "order: "+text)
	}
	if s.Enforcement != nil {
		list = append(list, s.Enforcement.String())
	}
	for _, x := range s.Exclusions {
		switch exclusion.Effect(x.Effect) {
		case exclusion.IgnoreFailures:
			list = append(list, fmt.Sprintf("exclusion rule %q of the server ignores its failures", x.Rule))
		case exclusion.CapTimeout:
			list = append(list, fmt.Sprintf("exclusion rule %q of the server allows it %d s at most", x.Rule, x.TimeoutSeconds))
		}
	}
	for i := range s.Evaluations {
		e := &s.Evaluations[i]
		param := ""
		if e.Param != "" {
			param = " with param " + e.Param
		}
		if e.FalseCondition != "" && s.Effect != Skip {
			list = append(list, fmt.Sprintf("match condition %q is false%s", e.FalseCondition, param))
		}
		for k := range e.Validations {
			v := &e.Validations[k]
			if v.Verdict == "holds" || v.Index == nil {
				continue
			}
			text := fmt.Sprintf("validation %d %s%s", *v.Index+1, map[string]string{"violated": "is violated", "failed": "failed"}[v.Verdict], param)
			if v.Because != "" {
				text += ", because this is false: " + v.Because
			}
			list = append(list, fmt.Sprintf("%s (cost %d of %d)", text, v.Cost, v.CostLimit))
		}
	}
	for i := range s.Evaluations {
		e := &s.Evaluations[i]
		for k := range e.Mutations {
			list = append(list, e.Mutations[k].detail(e))
		}
	}
	for i := range s.Consequences {
		if c := &s.Consequences[i]; c.Spared {
			list = append(list, fmt.Sprintf("would be rejected: %s (%s)", strings.ReplaceAll(c.Message, "\n", " "), c.Enforcement))
		} else if c.Binding != "" && len(c.Actions) > 0 {
			list = append(list, fmt.Sprintf("binding %s (%s): %s", c.Binding, strings.Join(c.Actions, ", "), strings.ReplaceAll(c.Message, "\n", " ")))
		}
	}
	for i := range s.Bindings {
		list = append(list, fmt.Sprintf("binding %s does not apply: %s", s.Bindings[i].Binding, s.Bindings[i].Reason.Message))
	}
	return list
}

// detail describes the effect of a mutation.
func (m *PolicyMutation) detail(e *PolicyEvaluation) string {
	with := ""
	if e.Param != "" {
		with = " with param " + e.Param
	}
	text := fmt.Sprintf("mutation %d, %s, binding %s%s: %s", m.Index+1, m.Type, e.Bindings[0], with, m.Verdict)
	if m.Verdict == "spared" {
		text += ", and would change the object"
	}
	if m.Patch != nil {
		text += " by " + string(m.Patch)
	}
	if m.Message != "" {
		text += ": " + strings.ReplaceAll(m.Message, "\n", " ")
	}
	return fmt.Sprintf("%s (cost %d of %d)", text, m.Cost, m.CostLimit)
}

// Summary describes the results of a policy's evaluations in a few words; empty for other
// steps.
func (s *Step) Summary() string {
	if s.Effect != Evaluate || len(s.Evaluations) == 0 {
		return ""
	}
	most := int64(0)
	for i := range s.Evaluations {
		most = max(most, s.Evaluations[i].Cost)
	}
	text := fmt.Sprintf("%s, cost %d of %d", s.Evaluations[0].Verdict, most, s.Evaluations[0].CostLimit)
	if n := len(s.Evaluations); n > 1 {
		text = fmt.Sprintf("%d params, %s", n, text)
	}
	return text
}
