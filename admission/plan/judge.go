package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/policy"
)

// Judgement is the result of a policy for a request.
type Judgement struct {
	Matched
	// Evaluations are the evaluations of the policy, in the order of their first bindings. A
	// validating policy has one for each param, even if several bindings lead to it.
	Evaluations []Evaluation
	// Consequences are the effects of all violations and errors, by binding, then by param,
	// then by expression.
	Consequences []Consequence
}

// Evaluation is one evaluation of a policy.
type Evaluation struct {
	Param Param
	policy.Result
	Start time.Time
	// Groups are the groups of bindings that lead to the evaluation; nil for a mutating policy.
	Groups []*snapshot.Group

	// Binding is the binding that leads to the evaluation of a mutating policy. Bindings of a
	// mutating policy share no evaluations, because the object changes in between.
	Binding *snapshot.Entry
	// Mutations are the results of a mutating policy's mutations, in order; none if a condition is
	// false, or there is no object to change.
	Mutations []Mutation
	// Spared reports whether only the conditions were evaluated, because this is the second
	// mutating pass and the evaluation need not be repeated (S18.26).
	Spared bool
	// Failure is the error that prevented the evaluation of a mutating policy.
	Failure error
	// Enforced is the enforcement of the binding of a mutating policy. If it is not enforced, the
	// changes of the mutations are discarded.
	Enforced Enforced
}

// Consequence is the effect of one violation or error by one binding. It may reject the
// request.
type Consequence struct {
	Policy *snapshot.Entry
	// Binding is nil for an error of the policy that does not depend on a binding.
	Binding *snapshot.Entry
	// Param is the param of the evaluation; nil if the policy was not evaluated.
	Param *Param
	Code  Code
	// Finding is the result of a validation, and Annotation the audit annotation that cannot be
	// evaluated; nil if the consequence has another cause.
	Finding    *policy.Finding
	Annotation *policy.Annotation
	// Mutation is the mutation that failed; nil if the consequence has another cause.
	Mutation *Mutation
	// Message and Reason are for the user.
	Message string
	Reason  metav1.StatusReason
	// Forgiven reports whether the consequence has no effect because the failure policy is
	// Ignore (S17.6).
	Forgiven bool
	// Denies, Warns and Audits report whether the consequence rejects the request, warns the client
	// and appears in the audit event. Actions are the actions of the binding, in order; nil if they
	// do not count (S17.13).
	Denies, Warns, Audits bool
	Actions               []v1.ValidationAction
	// Enforced is the enforcement of the binding, or of the policy if there is no binding. Spared
	// reports whether the consequence would reject the request if enforced.
	Enforced Enforced
	Spared   bool
}

// soften turns a rejection into a warning or an audit record, if the mode requires it (S28.6).
func (c *Consequence) soften(e Enforced) {
	if c.Enforced = e; !e.Mode.Soft() || c.Forgiven {
		return
	}
	c.Spared, c.Denies = c.Denies, false
	list := []v1.ValidationAction{}
	if e.Mode == registration.ModeWarn && (c.Spared || c.Warns) {
		list = append(list, v1.Warn)
	}
	if c.Spared || c.Audits || c.Warns {
		list = append(list, v1.Audit)
	}
	c.Actions, c.Warns, c.Audits = list, slices.Contains(list, v1.Warn), slices.Contains(list, v1.Audit)
}

// Text returns the message of a rejection (S17.15, S18.24).
func (c *Consequence) Text() string {
	if c.Policy.Source == registration.MutatingPolicies {
		if c.Binding == nil {
			return fmt.Sprintf("policy %q denied request: %s", c.Policy.Configuration, c.Message)
		}
		return fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", c.Policy.Configuration, c.Binding.Configuration, c.Message)
	}
	if c.Binding == nil {
		return fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", c.Policy.Configuration, c.Message)
	}
	return fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", c.Policy.Configuration, c.Binding.Configuration, c.Message)
}

// Judge evaluates the policies of candidates for a request, each once for each param. The error is
// an API status that rejects the request regardless of the failure policies (S17.5).
func Judge(ctx context.Context, candidates []Candidate, r *Request, e Equivalents, in *Input, all bool) ([]Judgement, error) {
	list := make([]Judgement, len(candidates))
	values := NewValues(r, in)
	for i := range candidates {
		j := &list[i]
		j.Matched = candidates[i].bindings(ctx, r, e, in, all)
		if err := j.judge(ctx, r, values); err != nil {
			j.Decision = Decision{Reason: Reason{Code: NotReached}}
			return list[:i+1], err
		}
	}
	return list, nil
}

// judge evaluates one policy.
func (j *Judgement) judge(ctx context.Context, r *Request, values *Values) error {
	if j.Err != nil {
		j.Consequences = []Consequence{j.configuration(nil, j.Reason.Code, j.Err)}
		j.soften(ctx, r, values.in)
		return nil
	}
	// A cell is an evaluation of a group. Most policies have one group with one evaluation.
	type cell struct{ group, evaluation int }
	var cells []cell
	quiet := true
	for i := range j.Groups {
		g := &j.Groups[i]
		if g.Err != nil {
			quiet = false
			continue
		}
		if !g.Applies {
			continue
		}
		if len(g.Params) > 0 {
			if _, err := values.Of(j.Candidate.Kind); err != nil {
				if errors.Is(err, ErrUnknown) {
					g.Decision = failed(Reason{entry: j.Candidate.Entry}, err)
					continue
				}
				err = fmt.Errorf("failed to convert object version: %w", err)
				g.Decision = failed(Reason{Code: NotConvertible, entry: j.Candidate.Entry},
					&PolicyError{Policy: j.Candidate.Entry.Entry, Binding: g.Bindings[0].Entry, Err: err})
				quiet = false
				continue
			}
		}
		if err := values.ReadNamespace(ctx); err != nil {
			if !j.spared(ctx, r, values.in, g) {
				return err
			}
			g.Decision = failed(Reason{Code: NamespaceUnreadable, entry: j.Candidate.Entry}, err)
			quiet = false
			continue
		}
		earlier := len(j.Evaluations)
		for k := range g.Params {
			n := j.evaluation(&g.Params[k], earlier)
			if n < 0 {
				n = len(j.Evaluations)
				j.Evaluations = append(j.Evaluations, j.evaluate(ctx, r, values, g.Params[k]))
				quiet = quiet && j.Evaluations[n].quiet()
			}
			j.Evaluations[n].Groups = append(j.Evaluations[n].Groups, g.Group)
			cells = append(cells, cell{i, n})
		}
	}
	if quiet {
		return nil
	}
	// The consequences are listed by binding, so the groups are split into bindings.
	type row struct {
		binding *snapshot.Entry
		cell    cell
	}
	var rows []row
	for i := range j.Groups {
		if g := &j.Groups[i]; g.Err != nil {
			for _, b := range g.Bindings {
				rows = append(rows, row{b, cell{i, -1}})
			}
		}
	}
	for _, c := range cells {
		for _, b := range j.Groups[c.group].Bindings {
			rows = append(rows, row{b, c})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(a.binding.Configuration, b.binding.Configuration) })
	defer j.soften(ctx, r, values.in)
	for _, row := range rows {
		if row.cell.evaluation < 0 {
			g := &j.Groups[row.cell.group]
			j.Consequences = append(j.Consequences, j.configuration(row.binding, g.Reason.Code, g.Err))
			continue
		}
		j.follow(row.binding, &j.Evaluations[row.cell.evaluation])
	}
	return nil
}

// spared reports whether no binding of a group is enforced. An error that prevents their evaluation
// then does not reject the request.
func (j *Judgement) spared(ctx context.Context, r *Request, in *Input, g *MatchedGroup) bool {
	return !slices.ContainsFunc(g.Bindings, func(b *snapshot.Entry) bool {
		return !j.Candidate.enforced(ctx, r, in, b).Mode.Soft()
	})
}

// soften applies the enforcement of the bindings to all consequences.
func (j *Judgement) soften(ctx context.Context, r *Request, in *Input) {
	for i := range j.Consequences {
		c := &j.Consequences[i]
		c.soften(j.Candidate.enforced(ctx, r, in, c.Binding))
	}
}

// evaluation returns the index of the evaluation with a param among the first n evaluations; -1 if
// there is none. The first n belong to earlier groups; the params within one group are distinct.
func (j *Judgement) evaluation(p *Param, n int) int {
	return slices.IndexFunc(j.Evaluations[:n], func(e Evaluation) bool {
		return e.Param.NamespacedName == p.NamespacedName && (e.Param.Object == nil) == (p.Object == nil)
	})
}

func (j *Judgement) evaluate(ctx context.Context, r *Request, values *Values, p Param) Evaluation {
	c := j.Candidate
	request, err := values.Of(c.Kind)
	if err != nil {
		panic(fmt.Sprintf("objects that were converted cannot be: %v", err))
	}
	e := Evaluation{Param: p, Start: time.Now()}
	e.Result = c.Entry.Policy.Validate(ctx, &policy.Input{Request: request, Own: r.Resource, Matched: c.Resource, Params: p.Object})
	return e
}

// quiet reports whether an evaluation has no consequences.
func (e *Evaluation) quiet() bool {
	return !slices.ContainsFunc(e.Findings, func(f policy.Finding) bool { return !f.Holds() }) &&
		!slices.ContainsFunc(e.Annotations, func(a policy.Annotation) bool { return a.Err != nil })
}

// configuration returns the consequence of a configuration error: the failure policy applies, and
// the actions of bindings do not count (S17.13).
func (j *Judgement) configuration(binding *snapshot.Entry, code Code, err error) Consequence {
	c := Consequence{
		Policy: j.Candidate.Entry, Binding: binding, Code: code, Message: err.Error(), Reason: metav1.StatusReasonInvalid,
		Forgiven: j.Candidate.Forgives(),
	}
	c.Denies = !c.Forgiven
	return c
}

// follow adds the consequences of an evaluation for one binding.
func (j *Judgement) follow(binding *snapshot.Entry, e *Evaluation) {
	base := Consequence{Policy: j.Candidate.Entry, Binding: binding, Param: &e.Param}
	forgives := j.Candidate.Forgives()
	for i := range e.Findings {
		f := &e.Findings[i]
		if f.Holds() {
			continue
		}
		c := base
		c.Finding, c.Message, c.Reason = f, f.Message, f.Reason
		c.Code, c.Forgiven = EvaluationFailed, !f.Violated && forgives
		switch {
		case f.Violated:
			c.Code = Violated
		case e.Condition.Err != nil:
			c.Code = ConditionFailed
		}
		if !c.Forgiven {
			c.act(binding.Binding)
		}
		j.Consequences = append(j.Consequences, c)
	}
	for i := range e.Annotations {
		a := &e.Annotations[i]
		if a.Err == nil {
			continue
		}
		c := base
		c.Annotation, c.Message, c.Reason = a, a.Err.Error(), metav1.StatusReasonInvalid
		c.Code, c.Forgiven, c.Denies = EvaluationFailed, forgives, !forgives
		j.Consequences = append(j.Consequences, c)
	}
}

// act sets the effects of the actions of a binding (S17.11).
func (c *Consequence) act(b *registration.Binding) {
	c.Actions = b.Actions
	for _, action := range b.Actions {
		switch action {
		case v1.Deny:
			c.Denies = true
		case v1.Warn:
			c.Warns = true
		case v1.Audit:
			c.Audits = true
		}
	}
}

// Denied returns the texts of all consequences that reject the request, and the reason of the first
// one; no texts if the request is allowed.
func Denied(judgements []Judgement) (texts []string, reason metav1.StatusReason) {
	for i := range judgements {
		for k := range judgements[i].Consequences {
			c := &judgements[i].Consequences[k]
			if !c.Denies {
				continue
			}
			if texts == nil {
				reason = c.Reason
			}
			texts = append(texts, c.Text())
		}
	}
	return texts, reason
}

// Skipped returns the reason why a policy was not evaluated and has no consequences.
func (j *Judgement) Skipped() Reason {
	if !j.Applies {
		return j.Reason
	}
	// If the policy has only one binding, the binding's reason is more specific.
	if len(j.Candidate.Entry.Bindings.All) == 1 && len(j.Groups) == 1 {
		// A binding without a rule for the request does not count.
		if g := &j.Groups[0]; !g.Applies && g.Reason.Code != NoRule && g.Reason.Code != Excluded {
			return g.Reason
		} else if g.Applies && len(g.Params) == 0 {
			return Reason{Code: NoParams, entry: j.Candidate.Entry}
		}
	}
	return Reason{Code: NoBindingApplies, entry: j.Candidate.Entry}
}
