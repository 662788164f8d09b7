package trace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/component-base/tracing"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// slowCall is the minimum duration of a call in the log of slow requests.
const slowCall = 100 * time.Millisecond

// tracerName is the instrumentation name of the spans.
const tracerName = "github.com/gatehouse-dev/gatehouse/admission"

// StartStep starts the span of one plugin in one pass, if the request is traced. The plugin must
// run with the returned context. The returned function ends the span; call it once, with the error
// of the plugin. round is 0, or 1 when the mutating plugins run again. For a request that is not
// traced, StartStep allocates nothing.
func StartStep(ctx context.Context, plugin string, pass registration.Pass, round int) (context.Context, func(error)) {
	request := oteltrace.SpanFromContext(ctx)
	if !request.IsRecording() {
		return ctx, ignoreError
	}
	ctx, span := request.TracerProvider().Tracer(tracerName).Start(ctx, "Admission step "+plugin,
		oteltrace.WithAttributes(attribute.String("plugin", plugin), attribute.Stringer("pass", pass), attribute.Int("round", round)))
	return ctx, func(err error) {
		outcome := "allowed"
		if err != nil {
			outcome = "rejected"
			span.RecordError(err)
		}
		span.SetAttributes(attribute.String("outcome", outcome))
		span.End()
	}
}

func ignoreError(error) {}

// CallSpan is the span of a call. Call End once, when the outcome of the call is recorded.
type CallSpan struct {
	// outer is the context of the step, and inner the context of the call.
	outer, inner context.Context
	run          *Run
	call         *Call
	// span is nil when the request is not traced.
	span *tracing.Span
}

// StartSpan starts the span of a call, if the request is traced. The call must use the returned
// context. A slow call also becomes an event of the request's own span, which the log of slow
// requests prints. For a request that is not traced, StartSpan allocates nothing.
func StartSpan(ctx context.Context, t *Run, c *Call) (context.Context, CallSpan) {
	s := CallSpan{outer: ctx, run: t, call: c}
	if oteltrace.SpanFromContext(ctx).IsRecording() {
		ctx, s.span = tracing.Start(ctx, spanName(c), spanAttributes(t, c)...)
		s.inner = ctx
	}
	return ctx, s
}

// End ends the span.
func (s CallSpan) End() {
	c := s.call
	if s.span != nil {
		if c.Err != nil {
			s.span.RecordError(c.Err)
		}
		s.span.AddEvent("Request completed", attribute.Stringer("verdict", c.Verdict))
		oteltrace.SpanFromContext(s.inner).SetAttributes(attribute.Stringer("outcome", c.Verdict), attribute.Int("code", c.Code))
		s.span.End(slowCall)
	}
	if time.Since(c.Start) >= slowCall {
		tracing.SpanFromContext(s.outer).AddEvent(spanName(c), spanAttributes(s.run, c)...)
	}
}

func spanName(c *Call) string {
	if c.Entry.Source.Descriptor().Pass == registration.MutatingPass {
		return "Call mutating webhook"
	}
	return "Call validating webhook"
}

func spanAttributes(t *Run, c *Call) []attribute.KeyValue {
	r := &t.Request
	return []attribute.KeyValue{
		attribute.String("configuration", c.Entry.Configuration),
		attribute.String("webhook", c.Entry.Name),
		attribute.String("resource", r.Resource.String()),
		attribute.String("subresource", r.Subresource),
		attribute.String("operation", r.Operation),
		attribute.String("UID", string(c.UID)),
		attribute.Int("round", t.Round),
	}
}

// SpanPolicies adds a span for each policy evaluation of a run, below the step's span in ctx, if
// the request is traced.
func SpanPolicies(ctx context.Context, t *Run) {
	step := oteltrace.SpanFromContext(ctx)
	if !step.IsRecording() {
		return
	}
	tracer := step.TracerProvider().Tracer(tracerName)
	for i := range t.Judgements {
		j := &t.Judgements[i]
		for k := range j.Evaluations {
			e := &j.Evaluations[k]
			_, span := tracer.Start(ctx, "Evaluate admission policy", oteltrace.WithTimestamp(e.Start), oteltrace.WithAttributes(
				attribute.String("policy", j.Policy.Configuration),
				attribute.StringSlice("bindings", e.Bindings),
				attribute.Int("round", t.Round),
				attribute.Int64("cost", int64(e.Cost)),
				attribute.String("outcome", e.outcome(j.FailurePolicy)),
			))
			if e.Param != nil {
				span.SetAttributes(attribute.String("param", e.Param.String()))
			}
			span.End(oteltrace.WithTimestamp(e.Start.Add(e.Latency)))
		}
	}
}
