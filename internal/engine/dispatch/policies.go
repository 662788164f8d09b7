package dispatch

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	cached "k8s.io/apiserver/pkg/admission/plugin/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/internal/engine/policy"
	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
)

// PolicyOptions configure a Policies.
type PolicyOptions struct {
	// Source is the source of the policies.
	Source registration.Source
	// NamespaceLabels returns the labels of a namespace, and Namespace the object for the
	// variable namespaceObject. If the namespace does not exist, both return the API status
	// NotFound. Both must be set.
	NamespaceLabels func(ctx context.Context, name string) (map[string]string, error)
	Namespace       func(ctx context.Context, name string) (*corev1.Namespace, error)
	// Params has the param objects of policies; nil means that no kind is known.
	Params plan.Params
	// Schemas has the schemas of the kinds that mutating policies change; without a schema, an
	// apply configuration fails.
	Schemas mutation.Schemas
	// Authorizer is the variable authorizer. If it is nil, expressions that use the variable fail.
	Authorizer upstream.Authorizer
	// Skips records in the trace the reasons why policies were not evaluated.
	Skips bool
	// Publisher receives the record of every run; it must be set.
	Publisher *trace.Publisher
}

// Policies runs the policies of a source. It is safe for concurrent use.
type Policies struct {
	options PolicyOptions
	whys    *rate.Limiter
}

// The explanation of a rejection evaluates the expressions once more. Only this many rejections per
// second are explained, so that a flood of rejections adds little cost.
const whysPerSecond, whysAtOnce = 10, 20

// NewPolicies returns a Policies.
func NewPolicies(o PolicyOptions) *Policies {
	return &Policies{o, rate.NewLimiter(whysPerSecond, whysAtOnce)}
}

// Validate evaluates the candidate policies of a request. It returns nil, or the API status that
// rejects the request. req must be plan.NewRequest of the attributes.
func (p *Policies) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, snap *snapshot.Snapshot, req *plan.Request, steps []plan.Candidate) error {
	in := p.input(objects.New(a, o))
	return p.run(ctx, a, snap, req, 0, func(ctx context.Context) ([]plan.Judgement, error) {
		judgements, err := plan.Judge(ctx, steps, req, o.GetEquivalentResourceMapper(), in, false)
		if err != nil {
			return judgements, err
		}
		texts, reason := plan.Denied(judgements)
		if texts == nil {
			return judgements, nil
		}
		err = req.PolicyDenial(in.Objects.Newest(), reason, texts)
		if (trace.FromContext(ctx) != nil || p.options.Publisher.Observer != nil) && p.whys.Allow() {
			in.Explain(ctx, req, judgements)
		}
		return judgements, err
	})
}

// run evaluates policies in a step of the trace, and publishes its record.
func (p *Policies) run(ctx context.Context, a admission.Attributes, snap *snapshot.Snapshot, req *plan.Request, round int, evaluate func(context.Context) ([]plan.Judgement, error)) error {
	record := &trace.Run{
		Request: RequestOf(req), Source: p.options.Source, Round: round, Revision: snap.Revision, ReadAt: snap.ReadAt, Start: time.Now(),
	}
	return step(ctx, p.options.Publisher, a, record, func(ctx context.Context) error {
		judgements, err := evaluate(ctx)
		for i := range judgements {
			p.note(record, &judgements[i])
		}
		excludedPolicies(record, judgements)
		trace.SpanPolicies(ctx, record)
		return err
	})
}

// input returns the Input of policies in one run.
func (p *Policies) input(set *objects.Set) *plan.Input {
	in := &plan.Input{
		Objects: set, NamespaceLabels: p.options.NamespaceLabels, Namespace: p.options.Namespace, Params: p.options.Params,
	}
	if p.options.Authorizer != nil {
		// The authorizer answers each distinct question only once (S16.13).
		in.Authorizer = cached.NewCachingAuthorizer(p.options.Authorizer)
	}
	return in
}

// note records a judgement. A policy is recorded as a skip if it or none of its bindings applies.
func (p *Policies) note(t *trace.Run, j *plan.Judgement) {
	if len(j.Evaluations) == 0 && len(j.Consequences) == 0 {
		if p.options.Skips {
			reason := j.Skipped()
			t.Skips = append(t.Skips, trace.Skip{Entry: j.Candidate.Entry.Origin, Code: reason.Code.String(), Reason: reason.String()})
		}
		return
	}
	t.Judgements = append(t.Judgements, record(j))
}

// record converts a judgement for traces.
func record(j *plan.Judgement) trace.Judgement {
	c := j.Candidate
	out := trace.Judgement{
		Policy: c.Entry.Origin, FailurePolicy: c.Entry.FailurePolicy, Rule: c.Rule,
		Kind: c.Kind, Resource: c.Resource, Subresource: c.Subresource, Equivalent: c.Equivalent,
	}
	if n := len(j.Evaluations); n > 0 {
		out.Evaluations = make([]trace.Evaluation, n)
	}
	for i := range j.Evaluations {
		evaluated(&out.Evaluations[i], &j.Evaluations[i], c.Entry.Policy)
	}
	for i := range j.Consequences {
		out.Consequences = append(out.Consequences, followed(&j.Consequences[i]))
	}
	return out
}

// evaluated converts an evaluation for traces.
func evaluated(out *trace.Evaluation, e *plan.Evaluation, p *policy.Policy) {
	*out = trace.Evaluation{
		Param: paramOf(&e.Param), Start: e.Start, Latency: e.Elapsed, Cost: e.Cost,
		Conditions: p.Conditions != nil, ConditionLatency: e.Condition.Elapsed, ConditionErrors: e.Condition.Errors,
	}
	if e.Condition.False != nil {
		out.False = e.Condition.False.Name
	}
	total := 0
	for _, g := range e.Groups {
		total += len(g.Bindings)
	}
	if e.Binding != nil {
		total = 1
	}
	out.Bindings = make([]string, 0, min(total, trace.MaxBindings))
	if e.Binding != nil {
		out.Bindings = append(out.Bindings, e.Binding.Configuration)
	}
	for _, g := range e.Groups {
		for _, b := range g.Bindings[:min(len(g.Bindings), trace.MaxBindings-len(out.Bindings))] {
			out.Bindings = append(out.Bindings, b.Configuration)
		}
	}
	out.More = total - len(out.Bindings)
	if len(e.Findings) > 0 {
		out.Validations = make([]trace.Validation, len(e.Findings))
	}
	for i := range e.Findings {
		f := &e.Findings[i]
		v := trace.Validation{Index: f.Index, Whole: f.Whole, Violated: f.Violated, Err: f.Err, Message: f.Message, Cost: f.Cost, Latency: f.Elapsed}
		if !f.Whole && !f.Holds() {
			v.Expression, v.Because = p.Validations[f.Index].Expression, f.Why.Part
			for _, part := range f.Why.Values {
				v.Values = append(v.Values, trace.PartValueRecord(part))
			}
		}
		out.Validations[i] = v
	}
	mutated(out, e, p)
	for i := range e.Annotations {
		a := &e.Annotations[i]
		out.Annotations = append(out.Annotations, trace.Annotation{Key: a.Key, Value: a.Value, Err: a.Err, Cost: a.Cost})
	}
}

// followed converts a consequence for traces.
func followed(c *plan.Consequence) trace.Consequence {
	out := trace.Consequence{
		Param: paramOf(c.Param), Code: c.Code.String(), Configuration: c.Param == nil,
		Message: c.Message, Reason: c.Reason, Denied: c.Denies, Forgiven: c.Forgiven, Spared: c.Spared,
		Enforcement: trace.Enforcement(c.Enforced),
	}
	if c.Binding != nil {
		out.Binding = c.Binding.Configuration
	}
	for _, action := range c.Actions {
		out.Actions = append(out.Actions, string(action))
	}
	switch {
	case c.Finding != nil:
		out.Index, out.Latency = c.Finding.Index, c.Finding.Elapsed
	case c.Mutation != nil:
		out.Index, out.Latency = c.Mutation.Index, c.Mutation.Elapsed
	case c.Annotation != nil:
		out.Key, out.Latency = c.Annotation.Key, c.Annotation.Elapsed
	}
	return out
}

func paramOf(p *plan.Param) *trace.Param {
	if p == nil || p.Object == nil {
		return nil
	}
	return &trace.Param{Namespace: p.Namespace, Name: p.Name}
}
