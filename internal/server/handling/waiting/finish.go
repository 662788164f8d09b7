package waiting

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

// Finish sets the functions that answer a request for which Serve returned true. When the
// handlers have returned, wait is called, and then answer, which returns the code that it sent.
// Neither function may use req or w, since all values that the functions hold stay in memory
// while the request waits. wait should need little of the stack. The request that answer gets has
// the user, the RequestInfo and the audit record of req in its context. Its ResponseWriter has
// the header that w has now.
func Finish(w http.ResponseWriter, req *http.Request, wait func(context.Context), answer func(http.ResponseWriter, *http.Request) (code int)) {
	ctx := req.Context()
	record := audited(ctx)
	f := &finishing{header: w.Header().Clone(), record: record, wait: wait, answer: answer}
	if record != nil {
		// Annotations are added by way of the context.
		f.values = context.WithoutCancel(ctx)
	} else {
		info, _ := request.RequestInfoFrom(ctx)
		received, _ := request.ReceivedTimestampFrom(ctx)
		user, _ := request.UserFrom(ctx)
		f.values = request.WithUser(request.WithReceivedTimestamp(request.WithRequestInfo(context.Background(), info), received), user)
	}
	visitOf(ctx).whenClosed(f.ServeHTTP, req)
}

// finishing is the part of a request that is kept after the request has left.
type finishing struct {
	header http.Header
	values context.Context
	record *audit.AuditContext
	wait   func(context.Context)
	answer func(http.ResponseWriter, *http.Request) int
}

func (f *finishing) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	f.wait(req.Context())
	f.respond(w, req)
}

func (f *finishing) respond(w http.ResponseWriter, req *http.Request) {
	maps.Copy(w.Header(), f.header)
	req = req.WithContext(remembering{req.Context(), f.values})
	if f.record != nil {
		f.record.SetEventResponseStatus(nil)
	}
	code := f.answer(w, req)
	if f.record != nil {
		f.record.SetEventResponseStatusCode(int32(code))
		f.record.ProcessEventStage(req.Context(), auditinternal.StageResponseComplete)
	}
	if logger := klog.V(3); logger.Enabled() {
		received, _ := request.ReceivedTimestampFrom(req.Context())
		// The log line of k8s.io/apiserver has these names.
		logger.InfoS("HTTP", "verb", req.Method, "URI", req.RequestURI, "latency", time.Since(received),
			"audit-ID", w.Header().Get("Audit-Id"), "srcIP", req.RemoteAddr, "resp", code)
	}
}

// remembering is a context that ends like the embedded one. Values come from another context first,
// then from the embedded one.
type remembering struct {
	context.Context
	values context.Context
}

func (r remembering) Value(key any) any {
	if v := r.values.Value(key); v != nil {
		return v
	}
	return r.Context.Value(key)
}

// audited returns the record of a request that is audited, and nil for other requests.
// AuditContext.Enabled is not enough: it is also true for requests of a server without an audit
// log.
func audited(ctx context.Context) *audit.AuditContext {
	record := audit.AuditContextFrom(ctx)
	if record == nil {
		return nil
	}
	if level := record.GetEventLevel(); level == "" || level == auditinternal.LevelNone {
		return nil
	}
	return record
}

// AuditBackend returns a backend that drops the events in which k8s.io/apiserver reports requests
// that have left as answered. A server with an audit log needs this backend.
func (r *Room) AuditBackend(inner audit.Backend) audit.Backend { return auditBackend{inner, r} }

type auditBackend struct {
	audit.Backend
	room *Room
}

func (b auditBackend) ProcessEvents(events ...*auditinternal.Event) bool {
	// The pointers are compared, not the content: a webhook may send a status with the same
	// content.
	unanswered := func(e *auditinternal.Event) bool { return e.ResponseStatus == b.room.unanswered }
	if slices.ContainsFunc(events, unanswered) {
		events = slices.DeleteFunc(slices.Clone(events), unanswered)
	}
	return len(events) == 0 || b.Backend.ProcessEvents(events...)
}
