package filters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	// A panic ends its request, as in the server, and not the test.
	utilruntime.ReallyCrash = false
	metrics.Register()
	os.Exit(m.Run())
}

// newConfig returns a configuration in which every named user is authenticated, and mallory may do
// nothing.
func newConfig(t *testing.T) *genericapiserver.Config {
	t.Helper()
	c := genericapiserver.NewConfig(scheme.Codecs)
	c.FeatureGate = utilfeature.DefaultFeatureGate
	c.ShutdownWatchTerminationGracePeriod = time.Second
	c.RequestTimeout = 10 * time.Second
	c.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString("exec"))
	c.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(c)
	c.Authentication.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		switch name := req.Header.Get("X-Name"); name {
		case "":
			return nil, false, nil
		case "broken":
			return nil, false, errors.New("nobody knows")
		default:
			return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}}, true, nil
		}
	})
	c.Authorization.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "mallory" {
			return authorizer.DecisionDeny, "not mallory", nil
		}
		return authorizer.DecisionAllow, "", nil
	})
	return c
}

// seen is the request that reached the handler, and the response to its client.
type seen struct {
	Status         int
	Header         http.Header
	Body           string
	User, Verb     string
	Deadline       bool
	Audit, Watches bool
	Parent         string
	Received       bool
}

// TestTheLibrarysOwnChain compares these filters with the chain of k8s.io/apiserver, request by
// request.
func TestTheLibrarysOwnChain(t *testing.T) {
	const pods = "/api/v1/namespaces/default/pods"
	parent := "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	for _, r := range []struct {
		name, method, path string
		header             map[string]string
		panics             bool
	}{
		{name: "a get", path: pods + "/one", header: map[string]string{"X-Name": "alice"}},
		{name: "a create", method: "POST", path: pods, header: map[string]string{"X-Name": "alice"}},
		{name: "a watch", path: pods + "?watch=true", header: map[string]string{"X-Name": "alice"}},
		{name: "no resource", path: "/healthz", header: map[string]string{"X-Name": "alice"}},
		{name: "nobody", path: pods},
		{name: "an authenticator that fails", path: pods, header: map[string]string{"X-Name": "broken"}},
		{name: "forbidden", path: pods, header: map[string]string{"X-Name": "mallory"}},
		{name: "as somebody else", path: pods, header: map[string]string{"X-Name": "alice", "Impersonate-User": "bob"}},
		{name: "as somebody who may not", path: pods, header: map[string]string{"X-Name": "alice", "Impersonate-User": "mallory"}},
		{name: "a group without a user", path: pods, header: map[string]string{"X-Name": "alice", "Impersonate-Group": "some"}},
		{name: "a timeout that is no time", path: pods + "?timeout=later", header: map[string]string{"X-Name": "alice"}},
		{name: "in a span", path: pods, header: map[string]string{"X-Name": "alice", "Traceparent": parent}},
		{name: "a panic", path: pods, header: map[string]string{"X-Name": "alice"}, panics: true},
	} {
		t.Run(r.name, func(t *testing.T) {
			through := func(build func(http.Handler, *genericapiserver.Config) http.Handler) (got seen) {
				api := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if r.panics {
						panic("as told")
					}
					ctx := req.Context()
					if u, ok := request.UserFrom(ctx); ok {
						got.User = u.GetName()
					}
					if info, ok := request.RequestInfoFrom(ctx); ok {
						got.Verb = info.Verb
					}
					_, got.Deadline = ctx.Deadline()
					got.Audit = audit.AuditContextFrom(ctx) != nil
					got.Watches = request.ServerShutdownSignalFrom(ctx) != nil
					_, got.Received = request.ReceivedTimestampFrom(ctx)
					if s := trace.SpanContextFromContext(ctx); s.IsValid() {
						got.Parent = s.TraceID().String()
					}
					warning.AddWarning(ctx, "", "careful")
					w.WriteHeader(http.StatusTeapot)
					fmt.Fprint(w, "short and stout")
				})
				server := httptest.NewServer(build(api, newConfig(t)))
				defer server.Close()
				req, err := http.NewRequestWithContext(t.Context(), r.method, server.URL+r.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				for key, value := range r.header {
					req.Header.Set(key, value)
				}
				answer, err := server.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				body, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatal(err)
				}
				got.Status, got.Header, got.Body = answer.StatusCode, answer.Header, string(body)
				// These differ from request to request.
				got.Header.Del("Audit-Id")
				got.Header.Del("Date")
				return got
			}
			want := through(genericapiserver.DefaultBuildHandlerChain)
			got := through(func(api http.Handler, c *genericapiserver.Config) http.Handler {
				return Library(api, c, Options{Stopping: make(chan struct{})})
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the library's chain and these filters (-want +got):\n%s", diff)
			}
		})
	}
}

// spans notes the names of spans.
type spans struct {
	noop.TracerProvider
	mu    sync.Mutex
	names []string
}

func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return &spanning{all: s} }

func (*spans) Shutdown(context.Context) error { return nil }

type spanning struct {
	noop.Tracer
	all *spans
}

func (s *spanning) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.all.names = append(s.all.names, name)
	return s.Tracer.Start(ctx, name, options...)
}

// If spans are exported, each filter has its span, in the order of k8s.io/apiserver.
func TestFiltersHaveTheLibrarysSpans(t *testing.T) {
	of := func(build func(http.Handler, *genericapiserver.Config) http.Handler) []string {
		c, s := newConfig(t), &spans{}
		c.TracerProvider = s
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/pods", nil)
		req.Header.Set("X-Name", "alice")
		build(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), c).ServeHTTP(httptest.NewRecorder(), req)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.names
	}
	want := of(genericapiserver.DefaultBuildHandlerChain)
	got := of(func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return Library(api, c, Options{Traced: true})
	})
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 4 {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// The time that a request is in each filter is counted under the names of k8s.io/apiserver.
func TestFiltersAreTimed(t *testing.T) {
	count := func() map[string]uint64 {
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]uint64{}
		for _, family := range families {
			if family.GetName() != "apiserver_request_filter_duration_seconds" {
				continue
			}
			for _, m := range family.GetMetric() {
				counts[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
		return counts
	}
	ask := func(build func(http.Handler, *genericapiserver.Config) http.Handler, name string) map[string]uint64 {
		before := count()
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/pods", nil)
		req.Header.Set("X-Name", name)
		build(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), newConfig(t)).ServeHTTP(httptest.NewRecorder(), req)
		after := count()
		maps.DeleteFunc(after, func(filter string, n uint64) bool { return n == before[filter] })
		return after
	}
	names := func(counts map[string]uint64) string { return strings.Join(slices.Sorted(maps.Keys(counts)), " ") }
	for _, name := range []string{"alice", "mallory", ""} {
		want := names(ask(genericapiserver.DefaultBuildHandlerChain, name))
		got := names(ask(func(api http.Handler, c *genericapiserver.Config) http.Handler { return Library(api, c, Options{}) }, name))
		if got != want || want == "" {
			t.Errorf("%q: filters %q were timed, want %q", name, got, want)
		}
	}
}

// A watch learns that the server ends.
func TestWatchesEndWithTheServer(t *testing.T) {
	stopping, watching := make(chan struct{}), make(chan struct{})
	handler := Library(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		signal := request.ServerShutdownSignalFrom(req.Context())
		close(watching)
		select {
		case <-signal.ShuttingDown():
		case <-req.Context().Done():
			t.Error("the watch did not learn it")
		}
	}), newConfig(t), Options{Stopping: stopping})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/pods?watch=true", nil)
	req.Header.Set("X-Name", "alice")
	done := make(chan struct{})
	go func() {
		defer close(done)
		handler.ServeHTTP(httptest.NewRecorder(), req)
	}()
	<-watching
	close(stopping)
	<-done
}

// Requests pay for a span only if it is exported.
func TestSpansAreForThoseWhoReadThem(t *testing.T) {
	for _, c := range []struct {
		name, header string
		always, want bool
	}{
		{"nobody reads spans", "", false, false},
		{"the caller has a span", "Traceparent", false, true},
		{"the caller has baggage", "Baggage", false, true},
		{"spans are exported", "", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := false
			handler := ifTraced(c.always, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got = true }), http.NotFoundHandler())
			req := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			if c.header != "" {
				req.Header.Set(c.header, "some")
			}
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if got != c.want {
				t.Errorf("traced: %t, want %t", got, c.want)
			}
		})
	}
}
