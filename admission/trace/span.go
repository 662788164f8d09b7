package trace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/component-base/tracing"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// slowCall is how long a call must take to be named in the log of slow requests.
const slowCall = 100 * time.Millisecond

// StartStep opens the span of a step, if the request is traced. The step is to run with
// the context that it returns; the function that it returns ends the span and must be
// called once, with what the plugin rejected the request with.
func StartStep(ctx context.Context, plugin string, pass registration.Pass) (context.Context, func(error)) {
	request := oteltrace.SpanFromContext(ctx)
	if !request.IsRecording() {
		return ctx, nothing
	}
	ctx, span := request.TracerProvider().Tracer(tracerName).Start(ctx, "Admission step "+plugin,
		oteltrace.WithAttributes(attribute.String("plugin", plugin), attribute.Stringer("pass", pass)))
	return ctx, func(err error) {
		span.SetAttributes(attribute.Bool("allowed", err == nil))
		if err != nil {
			span.RecordError(err)
		}
		span.End()
	}
}

// tracerName says which library made a span.
const tracerName = "github.com/gatehouse-dev/gatehouse/admission"

func nothing(error) {}

// StartSpan opens the span of a call that is about to be made for a request, if
// the request is traced. The context it returns is the one to call with; the
// function it returns ends the span and must be called once, when the call's
// outcome is recorded. Slow calls become an event of the request's own span
// besides, which is what the log of slow requests shows.
func StartSpan(ctx context.Context, r *Request, c *Call) (context.Context, func()) {
	outer := ctx
	end := func() {}
	if oteltrace.SpanFromContext(ctx).IsRecording() {
		var span *tracing.Span
		ctx, span = tracing.Start(ctx, spanName(c), spanAttributes(r, c)...)
		end = func() {
			if c.Err != nil {
				span.RecordError(c.Err)
			}
			span.AddEvent("Request completed", attribute.Stringer("verdict", c.Verdict))
			span.End(slowCall)
		}
	}
	return ctx, func() {
		end()
		if time.Since(c.Start) >= slowCall {
			tracing.SpanFromContext(outer).AddEvent(spanName(c), spanAttributes(r, c)...)
		}
	}
}

func spanName(c *Call) string {
	if c.Entry.Source.Descriptor().Pass == registration.MutatingPass {
		return "Call mutating webhook"
	}
	return "Call validating webhook"
}

func spanAttributes(r *Request, c *Call) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("configuration", c.Entry.Configuration),
		attribute.String("webhook", c.Entry.Name),
		attribute.String("resource", r.Resource.String()),
		attribute.String("subresource", r.Subresource),
		attribute.String("operation", r.Operation),
		attribute.String("UID", string(c.UID)),
	}
}
