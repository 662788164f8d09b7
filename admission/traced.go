package admission

import (
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// TraceHeader is the response header with the ID of the request's trace. A response has the header
// if the request went through admission.
const TraceHeader = "Gatehouse-Trace"

// Traced follows requests through both passes. next handles each request with a context that
// carries a trace. After next has returned, Traced calls done with the trace if the request went
// through admission. Traced must be installed where requests have their RequestInfo, and directly
// around the handler that runs admission. Without Traced, every run of an Engine's plugin has a
// trace of its own (Options.Observer).
//
// If the server responds because of a timeout, admission may continue for a while: done can receive
// the later steps with Trace.Late.
func Traced(next http.Handler, done func(*trace.Trace)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !judged(r) {
			next.ServeHTTP(w, r)
			return
		}
		t := trace.New()
		t.AuditID = audit.GetAuditIDTruncated(r.Context())
		written := &tracedWriter{ResponseWriter: w, trace: t}
		defer func() {
			t.Finish()
			if t.Judged() {
				written.respond()
				done(t)
			}
		}()
		w = responsewriter.WrapForHTTP1Or2(written)
		next.ServeHTTP(w, r.WithContext(trace.NewContext(r.Context(), t)))
	})
}

// judged reports whether a request may go through admission: a write, or a connection to a
// subresource.
func judged(r *http.Request) bool {
	switch r.Method {
	case http.MethodHead, http.MethodOptions:
		return false
	case http.MethodGet:
		info, ok := request.RequestInfoFrom(r.Context())
		return ok && info.IsResourceRequest && info.Subresource != ""
	}
	return true
}

// tracedWriter adds the header when the response begins. After a timeout admission may still run,
// so only the goroutine that responds modifies the headers.
type tracedWriter struct {
	http.ResponseWriter
	trace *trace.Trace
	begun bool
	// code is the status code; 0 before the response begins. failure is the body of an error.
	code    int
	failure []byte
}

// maxFailure bounds, in bytes, the body of an error that is searched for its reason.
const maxFailure = 256 << 10

// statuses decodes the Status of an error.
var statuses = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
})

// respond records the response in the trace.
func (w *tracedWriter) respond() {
	if w.code == 0 {
		return
	}
	response := trace.Response{Code: w.code}
	if len(w.failure) > 0 {
		// An error in another format, or compressed, has no reason.
		if o, _, err := statuses().Decode(w.failure, nil, nil); err == nil {
			if s, ok := o.(*metav1.Status); ok {
				response.Reason, response.Message = string(s.Reason), s.Message
			}
		}
	}
	w.trace.Respond(response)
}

var _ responsewriter.UserProvidedDecorator = (*tracedWriter)(nil)

func (w *tracedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Header sets TraceHeader before it returns, for handlers that keep the returned headers and
// respond later, in another goroutine.
func (w *tracedWriter) Header() http.Header {
	header := w.ResponseWriter.Header()
	if !w.begun && w.trace.Judged() {
		header.Set(TraceHeader, w.trace.ID)
	}
	return header
}

func (w *tracedWriter) WriteHeader(code int) {
	w.Header()
	w.begun = true
	if code >= http.StatusOK {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *tracedWriter) Write(data []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	if w.code >= http.StatusBadRequest && len(w.failure) < maxFailure {
		w.failure = append(w.failure, data[:min(len(data), maxFailure-len(w.failure))]...)
	}
	return w.ResponseWriter.Write(data)
}
