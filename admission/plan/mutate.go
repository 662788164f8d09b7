package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
	"github.com/gatehouse-dev/gatehouse/internal/engine/policy"
)

// Mutation is the result of one mutation of a MutatingAdmissionPolicy.
type Mutation struct {
	// Index is the index of the mutation in the policy.
	Index int
	// Outcome is the outcome of the expression. Err may also be the error of applying the value.
	// Elapsed covers evaluation and application.
	policy.Outcome
	// Changed reports whether the mutation changed the object.
	Changed bool
}

// Patch returns the value of the expression as JSON patch operations; nil if there is no change.
func (m *Mutation) Patch() []byte {
	if m.Change == nil || m.Change.Empty() {
		return nil
	}
	data, err := json.Marshal(m.Change)
	if err != nil {
		panic(fmt.Sprintf("the object cannot be encoded: %v", err))
	}
	return data
}

// Invocation identifies one evaluation of a mutating policy across snapshots (S18.26).
type Invocation struct {
	Policy, Binding string
	// Namespace and Name identify the param; empty if there is no param.
	Namespace, Name string
}

// Round decides which evaluations of mutating policies take place in one of the two mutating passes
// over a request, and counts them.
type Round interface {
	// Wanted reports whether an evaluation whose conditions are true continues with its
	// mutations (S18.26).
	Wanted(Invocation) bool
	// Repeats reports whether this is the second pass.
	Repeats() bool
	// Invoked is called for each evaluation that continued. repeats reports whether the evaluation
	// may be repeated, and changed whether it changed the object (S18.27).
	Invoked(i Invocation, repeats, changed bool)
}

// Changer changes the object of a request; *objects.Set has such a method. changed reports whether
// the object differs from before. An error that wraps ErrUnknown means that the result of the
// change is unknown.
type Changer func(ctx context.Context, kind schema.GroupVersionKind, change *mutation.Change) (changed bool, err error)

// Mutate evaluates the mutating policies of candidates for a request, one binding and one param
// after the other, and applies their changes to the object (S18.2, S18.3). All policies are matched
// before the first one changes anything (S14.13). With a nil Round, all evaluations continue. At
// the end Mutate settles in.Objects, so that the request's own object is up to date (S18.7).
//
// The error is an API status that rejects the request regardless of the failure policies (S17.5).
func Mutate(ctx context.Context, candidates []Candidate, r *Request, e Equivalents, in *Input, round Round, all bool) ([]Judgement, error) {
	list := make([]Judgement, len(candidates))
	values := NewValues(r, in)
	values.plain = true
	var steps []invocation
	for i := range candidates {
		list[i].Matched = candidates[i].bindings(ctx, r, e, in, all)
		steps = list[i].invocations(steps, values)
	}
	if len(steps) == 0 {
		for i := range list {
			list[i].soften(ctx, r, in)
		}
		return list, nil
	}
	if err := values.ReadNamespace(ctx); err != nil {
		for _, step := range steps {
			j := step.judgement
			if !j.Candidate.enforced(ctx, r, in, step.binding).Mode.Soft() {
				return list, err
			}
			j.Consequences = append(j.Consequences, j.misconfigured(step.binding, NamespaceUnreadable, err))
		}
		steps = nil
	}
	m := &mutator{ctx: ctx, request: r, in: in, values: values, round: round}
	for _, step := range steps {
		m.invoke(step)
	}
	for i := range list {
		list[i].follows()
		list[i].soften(ctx, r, in)
	}
	if err := in.Objects.Settle(); err != nil {
		return list, apierrors.NewInternalError(fmt.Errorf("failed to convert object: %w", err))
	}
	return list, nil
}

// invocation is one pending evaluation.
type invocation struct {
	judgement *Judgement
	binding   *snapshot.Entry
	param     Param
}

// invocations appends the evaluations of a policy, in order, and adds the consequences of
// configuration errors.
func (j *Judgement) invocations(steps []invocation, values *Values) []invocation {
	if j.Err != nil {
		j.Consequences = []Consequence{j.misconfigured(nil, j.Reason.Code, j.Err)}
		return steps
	}
	type row struct {
		binding *snapshot.Entry
		group   *MatchedGroup
	}
	var rows []row
	for i := range j.Groups {
		g := &j.Groups[i]
		if g.Err == nil && !g.Applies {
			continue
		}
		for _, b := range g.Bindings {
			rows = append(rows, row{b, g})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(a.binding.Configuration, b.binding.Configuration) })
	for _, row := range rows {
		if row.group.Err != nil {
			j.Consequences = append(j.Consequences, j.misconfigured(row.binding, row.group.Reason.Code, row.group.Err))
			continue
		}
		if _, err := values.Of(j.Candidate.Kind); err != nil {
			if errors.Is(err, ErrUnknown) {
				row.group.Decision = failed(Reason{entry: j.Candidate.Entry}, err)
				continue
			}
			err = &PolicyError{Policy: j.Candidate.Entry.Entry, Err: err}
			j.Consequences = append(j.Consequences, j.misconfigured(nil, NotConvertible, err))
			continue
		}
		for _, param := range row.group.Params {
			steps = append(steps, invocation{j, row.binding, param})
		}
	}
	return steps
}

// misconfigured returns the consequence of a configuration error of a mutating policy (S18.24).
func (j *Judgement) misconfigured(binding *snapshot.Entry, code Code, err error) Consequence {
	c := j.configuration(binding, code, err)
	c.Reason = metav1.StatusReasonForbidden
	return c
}

// mutator runs one mutating pass over one object.
type mutator struct {
	ctx     context.Context
	request *Request
	in      *Input
	// values are the values of the current object.
	values *Values
	round  Round
}

// invoke evaluates a policy for one binding and one param: first its conditions, then
// Round.Wanted, then its mutations (S18.5).
func (m *mutator) invoke(step invocation) {
	j := step.judgement
	c := j.Candidate
	j.Evaluations = append(j.Evaluations, Evaluation{Param: step.param, Binding: step.binding})
	e := &j.Evaluations[len(j.Evaluations)-1]
	e.Start = time.Now()
	defer func() { e.Elapsed = time.Since(e.Start) }()
	request, err := m.values.Of(c.Kind)
	if err != nil {
		// The object after an earlier policy cannot be converted (D52, D55).
		e.Failure = fmt.Errorf("failed to convert object: %w", err)
		return
	}
	in := &policy.Input{Request: request, Own: m.request.Resource, Matched: c.Resource, Params: step.param.bare()}
	p := c.Entry.Policy
	e.Condition = p.Match(m.ctx, in)
	e.Cost = e.Condition.Cost
	if e.Condition.False != nil || e.Condition.Err != nil {
		return
	}
	if e.Enforced = c.enforced(m.ctx, m.request, m.in, step.binding); e.Enforced.Mode.Soft() {
		if m = m.fork(c.Kind, e); m == nil {
			return
		}
		if request, err = m.values.Of(c.Kind); err != nil {
			e.Failure = fmt.Errorf("failed to convert object: %w", err)
			return
		}
		in.Request = request
	}
	key := keyOf(c.Entry, step.binding, &step.param)
	if m.round != nil && !m.round.Wanted(key) {
		e.Spared = true
		return
	}
	changed := false
	if m.in.Objects.Newest() != nil {
		e.Mutations = make([]Mutation, len(p.Mutations))
		for i := range p.Mutations {
			one := &e.Mutations[i]
			one.Index = i
			m.mutate(one, p, in, c.Kind)
			e.Cost += one.Cost
			if !one.Changed {
				continue
			}
			changed = true
			if in.Request, err = m.values.Of(c.Kind); err != nil {
				// The object was just changed in this kind, so it can be converted.
				panic(fmt.Sprintf("an object in %s cannot be had in that kind: %v", c.Kind, err))
			}
		}
	}
	if m.round != nil {
		m.round.Invoked(key, c.Entry.Entry.Policy.Reinvoked, changed)
	}
}

// fork returns a mutator for a copy of the object, for a binding that is not enforced; its changes
// are discarded. It returns nil in the second round, which does not repeat such bindings.
func (m *mutator) fork(kind schema.GroupVersionKind, e *Evaluation) *mutator {
	if m.round != nil && m.round.Repeats() {
		e.Spared = true
		return nil
	}
	in := *m.in
	in.Change = nil
	if m.in.Fork != nil {
		var err error
		if in.Objects, in.Change, err = m.in.Fork(kind); err != nil {
			e.Failure = fmt.Errorf("failed to convert object: %w", err)
			return nil
		}
	}
	values := NewValues(m.request, &in)
	values.plain, values.namespace = m.values.plain, m.values.namespace
	return &mutator{ctx: m.ctx, request: m.request, in: &in, values: values}
}

// mutate evaluates one mutation and changes the object.
func (m *mutator) mutate(one *Mutation, p *policy.Policy, in *policy.Input, kind schema.GroupVersionKind) {
	start := time.Now()
	one.Outcome = p.Mutate(m.ctx, in, one.Index)
	if one.Err == nil {
		if m.in.Change == nil {
			one.Err = fmt.Errorf("%w: what becomes of the object is not known here", ErrUnknown)
		} else {
			one.Changed, one.Err = m.in.Change(m.ctx, kind, one.Change)
		}
	}
	if one.Changed {
		m.values.Changed()
	}
	one.Elapsed = time.Since(start)
}

func keyOf(p, binding *snapshot.Entry, param *Param) Invocation {
	return Invocation{Policy: p.Configuration, Binding: binding.Configuration, Namespace: param.Namespace, Name: param.Name}
}

// bare returns the param in the form for mutating policies: a param of a built-in kind has no
// apiVersion and no kind (S15.11, D78).
func (p *Param) bare() runtime.Object {
	if p.Object == nil || p.Object.GetObjectKind().GroupVersionKind().Empty() {
		return p.Object
	}
	if u, ok := p.Object.(*unstructured.Unstructured); ok {
		// Upstream reads params of the kinds known to its client as objects of that client.
		if !scheme.Scheme.Recognizes(u.GroupVersionKind()) {
			return u
		}
		content := maps.Clone(u.Object)
		delete(content, "apiVersion")
		delete(content, "kind")
		return &unstructured.Unstructured{Object: content}
	}
	object := p.Object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return object
}

// Changed drops the cached values. Call it after each change of the object.
func (v *Values) Changed() { v.kinds = v.kinds[:0] }

// follows adds the consequences of the evaluations of a mutating policy. It keeps all errors, even
// if later evaluations succeeded (S18.24).
func (j *Judgement) follows() {
	for i := range j.Evaluations {
		e := &j.Evaluations[i]
		base := Consequence{
			Policy: j.Candidate.Entry, Binding: e.Binding, Param: &e.Param,
			Reason: metav1.StatusReasonInvalid, Forgiven: j.Candidate.Forgives(),
		}
		base.Denies = !base.Forgiven
		if err := e.Failure; err != nil {
			c := base
			c.Code, c.Message = NotConvertible, err.Error()
			j.Consequences = append(j.Consequences, c)
		}
		if err := e.Condition.Err; err != nil {
			c := base
			c.Code, c.Message = ConditionFailed, err.Error()
			j.Consequences = append(j.Consequences, c)
		}
		for k := range e.Mutations {
			one := &e.Mutations[k]
			if one.Err == nil || errors.Is(one.Err, ErrUnknown) {
				continue
			}
			c := base
			c.Mutation, c.Code, c.Message = one, EvaluationFailed, one.Err.Error()
			if one.Change != nil {
				c.Code = PatchFailed
			}
			j.Consequences = append(j.Consequences, c)
		}
	}
}

// Refused returns the texts of all consequences that reject the request after Mutate, configuration
// errors first, and the reason of the first one; none if the request is allowed (S18.24).
func Refused(judgements []Judgement) (texts []string, reason metav1.StatusReason) {
	for _, configuration := range []bool{true, false} {
		for i := range judgements {
			for k := range judgements[i].Consequences {
				c := &judgements[i].Consequences[k]
				if !c.Denies || (c.Param == nil) != configuration {
					continue
				}
				if texts == nil {
					reason = c.Reason
				}
				texts = append(texts, c.Text())
			}
		}
	}
	return texts, reason
}

// MutationDenial returns the rejection of a request by mutating policies. Unlike with
// PolicyDenial, its code is always 403 (S18.24, F23).
func (r *Request) MutationDenial(object runtime.Object, reason metav1.StatusReason, messages []string) *apierrors.StatusError {
	err := r.PolicyDenial(object, reason, messages)
	err.ErrStatus.Code, err.ErrStatus.Message = 403, messages[0]
	return err
}
