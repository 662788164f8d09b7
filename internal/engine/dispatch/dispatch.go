package dispatch

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
)

// Options configure a Dispatcher.
type Options struct {
	// Source is the source of the webhooks. Its zero value is registration.Mutating.
	Source registration.Source
	// Caller calls the webhooks; it must be set.
	Caller Caller
	// NamespaceLabels returns the labels of a namespace, or the API status
	// NotFound (S2.15). It must be set.
	NamespaceLabels func(ctx context.Context, name string) (map[string]string, error)
	// Authorizer is the variable authorizer of match conditions. If it is nil, conditions that use
	// the variable fail.
	Authorizer upstream.Authorizer
	// Serial disables calls ahead of turn.
	Serial bool
	// Skips records in the trace the reasons why webhooks were not called.
	Skips bool
	// StepAside, if set, is called when a pass over the request of ctx has taken 100 ms, or at its
	// beginning if one of its webhooks took that long the last time. The Dispatcher calls the
	// returned function when the pass ends. In between, the request waits for webhooks, and a
	// server need not count it among its concurrent requests.
	StepAside func(ctx context.Context) (back func())
	// Publisher receives the record of every run; it must be set.
	Publisher *trace.Publisher
}

// Dispatcher runs plans. It is safe for concurrent use.
type Dispatcher struct {
	options  Options
	forecast forecast
	slow     slowHooks
}

// New makes a Dispatcher.
func New(o Options) *Dispatcher { return &Dispatcher{options: o} }

// run is one pass over one request.
type run struct {
	*Dispatcher
	a       admission.Attributes
	request *plan.Request
	steps   []plan.Candidate
	objects *objects.Set
	input   plan.Input
	budget  budget
	// share is the memory for the answers to the request. It is set if webhooks may be called.
	share *call.Share
	trace *trace.Run
}

// Run runs the candidates of the dispatcher's source, in order. It returns nil, or the API status
// that rejects the request. req must be plan.NewRequest of the attributes.
//
// In the mutating pass Run changes the attributes' object; after an error its content is undefined.
func (d *Dispatcher) Run(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, snap *snapshot.Snapshot, req *plan.Request, steps []plan.Candidate) error {
	if len(steps) == 0 {
		return nil
	}
	now := time.Now()
	r := &run{
		Dispatcher: d,
		a:          a,
		request:    req,
		steps:      steps,
		objects:    objects.New(a, o),
		budget:     newBudget(ctx, d.options.Source, now),
		trace: &trace.Run{
			Request:  RequestOf(req),
			Source:   d.options.Source,
			Revision: snap.Revision,
			ReadAt:   snap.ReadAt,
			Start:    now,
		},
	}
	if d.options.Source.Descriptor().Pass == registration.MutatingPass && a.GetReinvocationContext().IsReinvoke() {
		r.trace.Round = 1
	}
	r.input = plan.Input{
		Objects:         r.objects,
		NamespaceLabels: d.options.NamespaceLabels,
		Authorizer:      d.options.Authorizer,
	}
	return step(ctx, d.options.Publisher, a, r.trace, func(ctx context.Context) error {
		defer r.exclusions()
		return r.pass(ctx)
	})
}

// step runs one pass of a plugin in a span of its own, and publishes its record.
func step(ctx context.Context, publisher *trace.Publisher, a admission.Attributes, record *trace.Run, do func(context.Context) error) error {
	d := record.Source.Descriptor()
	inside, end := trace.StartStep(ctx, d.Plugin, d.Pass, record.Round)
	record.Err = do(inside)
	end(record.Err)
	record.Latency = time.Since(record.Start)
	publisher.Publish(ctx, a, record)
	return record.Err
}

// RequestOf returns the description of a request for traces.
func RequestOf(r *plan.Request) trace.Request {
	t := trace.Request{
		Operation: string(r.Operation), Resource: r.Resource, Subresource: r.Subresource, Kind: r.Kind,
		Namespace: r.Namespace, Name: r.Name, DryRun: r.DryRun,
	}
	if r.User != nil {
		t.User = r.User.GetName()
	}
	return t
}

// pass runs the steps.
func (r *run) pass(ctx context.Context) error {
	defer r.stepAside(ctx)()
	if r.options.StepAside != nil {
		defer func() { r.slow.note(r.trace.Calls) }()
	}
	if r.options.Source.Descriptor().Pass == registration.MutatingPass {
		return r.mutate(ctx)
	}
	return r.validate(ctx)
}

// record returns the initial record of a step's call. matched is the number of earlier webhooks
// that matched.
func (r *run) record(step *plan.Candidate, matched int) trace.Call {
	return trace.Call{
		Entry:         step.Entry.Origin,
		FailurePolicy: step.Entry.FailurePolicy,
		Position:      step.Entry.Position,
		Matched:       matched,
		Rule:          step.Rule,
		Kind:          step.Kind,
		Resource:      step.Resource,
		Subresource:   step.Subresource,
		Equivalent:    step.Equivalent,
	}
}

// judge returns the rejection of the request after a call; nil if the request continues. It applies
// the failure policy (S7.1 to S7.3) and the enforcement of the webhook (S28.2) to status, the
// rejection by the call alone.
func judge(step *plan.Candidate, c *trace.Call, status *apierrors.StatusError) *apierrors.StatusError {
	if c.Verdict == trace.Failed && step.Forgives() {
		c.Ignored = true
		return nil
	}
	if c.Enforcement.Mode.Soft() {
		return nil
	}
	return status
}

// late returns the error of a request that timed out.
func late() error {
	return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
}
