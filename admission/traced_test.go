package admission

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// handled passes a request to a handler behind Traced, and returns the response and the traces.
func handled(t *testing.T, method string, info *request.RequestInfo, handle http.HandlerFunc) (*httptest.ResponseRecorder, []*trace.Trace) {
	t.Helper()
	var traces []*trace.Trace
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/", nil)
	r = r.WithContext(request.WithRequestInfo(r.Context(), info))
	Traced(handle, func(t *trace.Trace) { traces = append(traces, t) }).ServeHTTP(w, r)
	return w, traces
}

func TestRequestsAreTraced(t *testing.T) {
	judge := func(w http.ResponseWriter, r *http.Request) {
		if t := trace.FromContext(r.Context()); t != nil {
			t.Add(trace.Step{Plugin: "P"})
		}
		w.Write([]byte("x"))
	}
	exec := &request.RequestInfo{IsResourceRequest: true, Subresource: "exec"}
	for _, c := range []struct {
		name, method string
		info         *request.RequestInfo
		handle       http.HandlerFunc
		traces       int
	}{
		{"a write", "POST", &request.RequestInfo{}, judge, 1},
		{"a read", "GET", &request.RequestInfo{IsResourceRequest: true}, judge, 0},
		{"a connection to a subresource", "GET", exec, judge, 1},
		{"a write that nobody judges", "POST", &request.RequestInfo{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, traces := handled(t, c.method, c.info, c.handle)
			want := ""
			if len(traces) == 1 {
				want = traces[0].ID
			}
			if len(traces) != c.traces || w.Header().Get(TraceHeader) != want {
				t.Errorf("%d traces, header %q", len(traces), w.Header().Get(TraceHeader))
			}
			if len(traces) == 1 && traces[0].Latency() == 0 {
				t.Error("the trace has no latency")
			}
		})
	}
}

// A trace has the code of the response, and the reason of an error in each encoding, even if it is
// written in several parts.
func TestATraceHasTheResponse(t *testing.T) {
	status := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, "web").Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	encoded := func(mediaType string) string {
		t.Helper()
		info, ok := runtime.SerializerInfoForMediaType(serializer.NewCodecFactory(scheme).SupportedMediaTypes(), mediaType)
		if !ok {
			t.Fatal(mediaType)
		}
		data, err := runtime.Encode(info.Serializer, &status)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	whole := &trace.Response{Code: 409, Reason: "AlreadyExists", Message: `configmaps "web" already exists`}
	for name, c := range map[string]struct {
		code int
		body string
		want *trace.Response
	}{
		"created":                 {201, `{"kind":"ConfigMap","apiVersion":"v1"}`, &trace.Response{Code: 201}},
		"JSON":                    {409, encoded(runtime.ContentTypeJSON), whole},
		"YAML":                    {409, encoded(runtime.ContentTypeYAML), whole},
		"protobuf":                {409, encoded(runtime.ContentTypeProtobuf), whole},
		"an error without a body": {422, "", &trace.Response{Code: 422}},
		"text":                    {500, "no", &trace.Response{Code: 500}},
		"another kind":            {404, `{"kind":"ConfigMap","apiVersion":"v1","reason":"Invalid"}`, &trace.Response{Code: 404}},
		"a long error":            {422, `{"kind":"Status","apiVersion":"v1","reason":"Invalid","message":"` + strings.Repeat("x", 2*maxFailure), &trace.Response{Code: 422}},
		"no response":             {0, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, traces := handled(t, "POST", &request.RequestInfo{}, func(w http.ResponseWriter, r *http.Request) {
				trace.FromContext(r.Context()).Add(trace.Step{Plugin: "P"})
				if c.code == 0 {
					return
				}
				w.WriteHeader(c.code)
				for part := range slices.Chunk([]byte(c.body), 10_000) {
					if _, err := w.Write(part); err != nil {
						t.Error(err)
					}
				}
			})
			if diff := cmp.Diff(c.want, traces[0].Response()); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

// A request that times out gets a response while admission continues. Run with -race, this test
// fails if both access the headers.
func TestALateStepTouchesNoHeader(t *testing.T) {
	step, late := make(chan struct{}), make(chan struct{})
	_, traces := handled(t, "POST", &request.RequestInfo{}, func(w http.ResponseWriter, r *http.Request) {
		followed := trace.FromContext(r.Context())
		followed.Add(trace.Step{Plugin: "P"})
		go func() {
			defer close(late)
			close(step)
			followed.Add(trace.Step{Plugin: "P"})
		}()
		<-step
		for range 100 {
			w.Header().Set("A", "b")
		}
		w.WriteHeader(504)
	})
	<-late
	if got := traces[0].Len(); got != 2 {
		t.Errorf("%d steps, want 2", got)
	}
}

func TestATraceKnowsItsRequest(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}
	a := admission.NewAttributesRecord(object, nil, kind, "shop", "", pods, "", admission.Create, nil, false, &user.DefaultInfo{Name: "jane"})
	followed := trace.New()
	ctx := trace.NewContext(t.Context(), followed)
	denied := errors.New("denied")
	chain := Chain(
		Plugin{"Mutator", mutator{link{admit: func(admission.Attributes) error { return nil }}}},
		Plugin{"Validator", validator{link{validate: func(admission.Attributes) error { return denied }}}},
	)
	if err := chain.Admit(ctx, a, nil); err != nil {
		t.Fatal(err)
	}
	object.Name, object.UID = "web-x", "uid"
	if err := chain.Validate(ctx, a, nil); err != denied {
		t.Fatal(err)
	}
	want := trace.Subject{Request: trace.Request{Operation: "CREATE", Resource: pods, Kind: kind, Namespace: "shop", Name: "web-x", User: "jane"}, UID: "uid"}
	if diff := cmp.Diff(want, followed.Subject()); diff != "" {
		t.Errorf("subject (-want +got):\n%s", diff)
	}
	record := followed.Record(trace.RecordOptions{})
	if len(record.Steps) != 2 || record.Outcome != trace.OutcomeFailed || record.Steps[1].Error != "denied" {
		t.Errorf("got %+v", record)
	}
}
