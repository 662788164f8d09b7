package trace

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

func TestSpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, request := provider.Tracer("test").Start(t.Context(), "request")
	r := &Request{Operation: "CREATE", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Subresource: "exec"}
	c := &Call{Entry: registration.Origin{Name: "a.b.c", Configuration: "config"}, UID: "7", Start: time.Now()}

	ctx, end := StartSpan(ctx, r, c)
	if !oteltrace.SpanContextFromContext(ctx).IsValid() || oteltrace.SpanFromContext(ctx) == request {
		t.Error("the call does not get a span of its own")
	}
	c.Verdict, c.Err = Failed, errors.New("no answer")
	end()

	ended := spans.Ended()
	if len(ended) != 1 || ended[0].Name() != "Call mutating webhook" || ended[0].Parent().SpanID() != request.SpanContext().SpanID() {
		t.Fatalf("got spans %v", ended)
	}
	got := map[string]string{}
	for _, a := range ended[0].Attributes() {
		got[string(a.Key)] = a.Value.AsString()
	}
	want := map[string]string{
		"configuration": "config", "webhook": "a.b.c", "resource": "/v1, Resource=pods", "subresource": "exec",
		"operation": "CREATE", "UID": "7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	var events []string
	for _, e := range ended[0].Events() {
		events = append(events, e.Name)
	}
	if diff := cmp.Diff([]string{"exception", "Request completed"}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestNoSpanForUntracedRequests(t *testing.T) {
	ctx := t.Context()
	got, end := StartSpan(ctx, &Request{}, &Call{Start: time.Now()})
	end()
	if got != ctx {
		t.Error("a request that is not traced gets another context")
	}
}

func TestAStepHasASpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, request := provider.Tracer("test").Start(t.Context(), "request")
	ctx, end := StartStep(ctx, "Plugin", registration.ValidatingPass)
	_, endCall := StartSpan(ctx, &Request{}, &Call{Start: time.Now()})
	endCall()
	end(errors.New("no"))

	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans ended, want those of the call and the step", len(ended))
	}
	call, step := ended[0], ended[1]
	if step.Name() != "Admission step Plugin" || step.Parent().SpanID() != request.SpanContext().SpanID() || call.Parent().SpanID() != step.SpanContext().SpanID() {
		t.Errorf("the span of the step is %q, below %s; the call is below %s", step.Name(), step.Parent().SpanID(), call.Parent().SpanID())
	}
	got := map[string]string{}
	for _, a := range step.Attributes() {
		got[string(a.Key)] = a.Value.Emit()
	}
	if diff := cmp.Diff(map[string]string{"plugin": "Plugin", "pass": "validating", "allowed": "false"}, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}

	untraced, end := StartStep(t.Context(), "Plugin", registration.MutatingPass)
	end(nil)
	if untraced != t.Context() {
		t.Error("a step of a request that is not traced gets another context")
	}
}
