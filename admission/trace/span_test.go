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

	ctx, span := StartSpan(ctx, &Run{Request: *r, Round: 1}, c)
	if !oteltrace.SpanContextFromContext(ctx).IsValid() || oteltrace.SpanFromContext(ctx) == request {
		t.Error("the call does not get a span of its own")
	}
	c.Verdict, c.Err, c.Code = Failed, errors.New("no answer"), 500
	span.End()

	ended := spans.Ended()
	if len(ended) != 1 || ended[0].Name() != "Call mutating webhook" || ended[0].Parent().SpanID() != request.SpanContext().SpanID() {
		t.Fatalf("got spans %v", ended)
	}
	got := map[string]string{}
	for _, a := range ended[0].Attributes() {
		got[string(a.Key)] = a.Value.String()
	}
	want := map[string]string{
		"configuration": "config", "webhook": "a.b.c", "resource": "/v1, Resource=pods", "subresource": "exec",
		"operation": "CREATE", "UID": "7", "round": "1", "outcome": "failed", "code": "500",
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
	run, call := &Run{}, &Call{Start: time.Now()}
	got, span := StartSpan(ctx, run, call)
	span.End()
	if got != ctx {
		t.Error("a request that is not traced gets another context")
	}
	call.Start = time.Now().Add(time.Hour)
	if n := testing.AllocsPerRun(100, func() {
		inside, end := StartStep(ctx, "Plugin", registration.MutatingPass, 0)
		_, span := StartSpan(inside, run, call)
		span.End()
		SpanPolicies(inside, run)
		end(nil)
	}); n != 0 {
		t.Errorf("the spans of a request that is not traced take %v allocations", n)
	}
}

// Each evaluation of a policy has a span below the span of the step (S10.8).
func TestAPolicyHasASpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, step := provider.Tracer("test").Start(t.Context(), "step")
	start := time.Now()
	SpanPolicies(ctx, &Run{Round: 1, Judgements: []Judgement{{
		Policy: registration.Origin{Configuration: "limits"},
		Evaluations: []Evaluation{{
			Param: &Param{Namespace: "shop", Name: "p"}, Bindings: []string{"b"}, Start: start, Latency: time.Second, Cost: 3,
			Validations: []Validation{{Violated: true}},
		}},
	}}})
	step.End()
	ended := spans.Ended()
	if len(ended) != 2 || ended[0].Name() != "Evaluate admission policy" || ended[0].Parent().SpanID() != step.SpanContext().SpanID() {
		t.Fatalf("got spans %v", ended)
	}
	if took := ended[0].EndTime().Sub(ended[0].StartTime()); took != time.Second {
		t.Errorf("the span is %s long, want that of the evaluation", took)
	}
	got := map[string]string{}
	for _, a := range ended[0].Attributes() {
		got[string(a.Key)] = a.Value.String()
	}
	want := map[string]string{"policy": "limits", "bindings": `["b"]`, "param": "shop/p", "round": "1", "cost": "3", "outcome": "violated"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func TestAStepHasASpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, request := provider.Tracer("test").Start(t.Context(), "request")
	ctx, end := StartStep(ctx, "Plugin", registration.ValidatingPass, 0)
	_, inner := StartSpan(ctx, &Run{}, &Call{Start: time.Now()})
	inner.End()
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
		got[string(a.Key)] = a.Value.String()
	}
	if diff := cmp.Diff(map[string]string{"plugin": "Plugin", "pass": "validating", "round": "0", "outcome": "rejected"}, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}

	untraced, end := StartStep(t.Context(), "Plugin", registration.MutatingPass, 0)
	end(nil)
	if untraced != t.Context() {
		t.Error("a step of a request that is not traced gets another context")
	}
}
