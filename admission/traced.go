package admission

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// TraceHeader is the header of an answer that names the trace of the request. It is there
// when admission judged the request.
const TraceHeader = "Gatehouse-Trace"

// Traced follows requests through both passes: next handles them, with a context that
// carries a trace, and done is given the trace of each request that admission judged when
// next has returned. Traced must stand where requests have their RequestInfo, and
// directly around what runs admission. Without it, the runs of an Engine's plugins are
// traces of their own (Options.Observer).
func Traced(next http.Handler, done func(*trace.Trace)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !judged(r) {
			next.ServeHTTP(w, r)
			return
		}
		t := trace.New()
		t.OnFirst = func() { w.Header().Set(TraceHeader, t.ID) }
		defer func() {
			t.Finish()
			if t.Len() > 0 {
				done(t)
			}
		}()
		next.ServeHTTP(w, r.WithContext(trace.NewContext(r.Context(), t)))
	})
}

// judged tells whether a request may go through admission: a write, or a connection to a
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
