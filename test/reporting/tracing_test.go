package reporting

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// spans is an OpenTelemetry receiver (OTLP over gRPC) that records spans.
type spans struct {
	collector.UnimplementedTraceServiceServer
	address string

	mu struct {
		sync.Mutex
		list []*tracev1.Span
	}
}

func receiveSpans(t *testing.T) *spans {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, server := &spans{address: listener.Addr().String()}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		// A test that is skipped may stop the server before it serves.
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return s
}

func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			s.mu.list = append(s.mu.list, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// of returns the spans of a trace.
func (s *spans) of(trace string) []*tracev1.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*tracev1.Span
	for _, one := range s.mu.list {
		if hex.EncodeToString(one.TraceId) == trace {
			list = append(list, one)
		}
	}
	return list
}

func attributesOf(s *tracev1.Span) map[string]string {
	values := map[string]string{}
	for _, a := range s.Attributes {
		switch v := a.Value; {
		case v.GetStringValue() != "":
			values[a.Key] = v.GetStringValue()
		case v.GetArrayValue() != nil:
			values[a.Key] = fmt.Sprint(len(v.GetArrayValue().Values))
		default:
			values[a.Key] = fmt.Sprint(v.GetIntValue())
		}
	}
	return values
}

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	parent  = "00-" + traceID + "-b7ad6b7169203331-01"
)

// A server with --tracing-config-file sends a span for each request and for each step of admission, and
// passes the trace context of the request to webhooks (S3.18, S10.8).
func TestRequestsAreTraced(t *testing.T) {
	t.Parallel()
	receiver := receiveSpans(t)
	file := writeFile(t, t.TempDir()+"/tracing.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: "+receiver.address+"\n")
	s := harness.Start(t, "--admission-consistency", "strict", "--tracing-config-file", file)
	admin := s.HTTP(t, nil)
	ns := s.EmptyNamespace(t)
	hooks := harness.NewWebhookServer(t, nil)
	first, second, judge := hooks.Hook("/first", harness.Allow), hooks.Hook("/second", harness.Patch(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)),
		hooks.Hook("/judge", harness.Deny(map[string]any{"code": 403, "message": "no"}))
	matching := rules(rule("CREATE", "/v1/configmaps"))
	register(t, s, "v1", mutating, webhook("a-first", ns, first, matching, `reinvocationPolicy: IfNeeded`))
	register(t, s, "v1", mutating, webhook("b-second", ns, second, matching, `reinvocationPolicy: Never`))
	register(t, s, "v1", validating, webhook("judge", ns, judge, matching))
	s.Kubectl(t, ns).MustWith(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: named}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "object.metadata.name != ''"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: everywhere}
spec: {policyName: named, validationActions: [Deny]}
`, "apply", "-f", "-")
	admin.Must(http.StatusForbidden, "POST", configMaps(ns), `{"metadata":{"name":"c"}}`, "Traceparent", parent)

	var found []*tracev1.Span
	byID := map[string]*tracev1.Span{}
	harness.Eventually(t, "the span of the request", func() error {
		found = receiver.of(traceID)
		for _, one := range found {
			byID[string(one.SpanId)] = one
		}
		if !slices.ContainsFunc(found, func(one *tracev1.Span) bool { return hex.EncodeToString(one.ParentSpanId) == "b7ad6b7169203331" }) {
			return fmt.Errorf("got %d spans without it", len(found))
		}
		return nil
	})
	// path formats a span as the names of its ancestors, its own name and the given attributes.
	path := func(one *tracev1.Span, keys ...string) string {
		text := one.Name
		for above := byID[string(one.ParentSpanId)]; above != nil; above = byID[string(above.ParentSpanId)] {
			text = above.Name + " > " + text
		}
		for _, key := range keys {
			if value, ok := attributesOf(one)[key]; ok {
				text += fmt.Sprintf(" %s=%s", key, value)
			}
		}
		return text
	}
	got := map[string]*tracev1.Span{}
	for _, one := range found {
		got[path(one, "plugin", "webhook", "policy", "round", "outcome")] = one
	}
	const request = "POST /api/v1/namespaces/{:namespace}/configmaps"
	call := func(name string) string { return name + "." + ns + ".example.com" }
	var names []string
	for name := range got {
		names = append(names, name)
	}
	for _, suffix := range []string{
		request,
		"Admission step MutatingAdmissionWebhook plugin=MutatingAdmissionWebhook round=0 outcome=allowed",
		"Admission step MutatingAdmissionWebhook > Call mutating webhook webhook=" + call("a-first") + " round=0 outcome=allowed",
		"Admission step MutatingAdmissionWebhook > Call mutating webhook webhook=" + call("b-second") + " round=0 outcome=allowed",
		"Admission step MutatingAdmissionWebhook plugin=MutatingAdmissionWebhook round=1 outcome=allowed",
		"Admission step MutatingAdmissionWebhook > Call mutating webhook webhook=" + call("a-first") + " round=1 outcome=allowed",
		"Admission step ValidatingAdmissionPolicy > Evaluate admission policy policy=named round=0 outcome=admitted",
		"Admission step ValidatingAdmissionWebhook plugin=ValidatingAdmissionWebhook round=0 outcome=rejected",
		"Admission step ValidatingAdmissionWebhook > Call validating webhook webhook=" + call("judge") + " round=0 outcome=denied",
	} {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, request) && strings.HasSuffix(name, suffix) }) {
			slices.Sort(names)
			t.Errorf("there is no span %q below that of the request in\n%s", suffix, strings.Join(names, "\n"))
		}
	}
	// A webhook's own spans would be children of the call.
	header := judge.Last(t).HTTP.Header.Get("Traceparent")
	parts := strings.Split(header, "-")
	if len(parts) != 4 || parts[1] != traceID {
		t.Fatalf("S3.18 the webhook got the trace context %q", header)
	}
	id, err := hex.DecodeString(parts[2])
	if err != nil || byID[string(id)] == nil || byID[string(id)].Name != "Call validating webhook" {
		t.Errorf("S3.18 the webhook got the trace context %q, which is not that of the call", header)
	}

	t.Run("S3.18 a server that records nothing passes the trace context on", func(t *testing.T) {
		s := sole(t)
		ns := s.EmptyNamespace(t)
		hook := hooks.Hook("/passed", harness.Allow)
		register(t, s, "v1", validating, webhook("passed", ns, hook, matching))
		s.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps(ns), `{"metadata":{"name":"c"}}`, "Traceparent", parent)
		want(t, "trace context", hook.Last(t).HTTP.Header.Get("Traceparent"), parent)
	})
}

// A hanging receiver delays neither requests nor the shutdown of the server. With --admission-trace-bytes 0, the server
// keeps no traces of its own.
func TestAReceiverOfSpansMayBeGone(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// The listener accepts connections, and sends nothing.
	defer listener.Close()
	file := writeFile(t, t.TempDir()+"/tracing.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 1000000\nendpoint: "+listener.Addr().String()+"\n")
	s := harness.Start(t, "--tracing-config-file", file, "--admission-trace-bytes", "0")
	admin := s.HTTP(t, nil)
	r := admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
	want(t, "header", r.Header.Get("Gatehouse-Trace"), "")
	want(t, "traces", traceNames(admin.Get(tracesPath)), []string{})
	s.Stop(t)
}
