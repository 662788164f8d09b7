package resources

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/server/inflight"
	"github.com/gatehouse-dev/gatehouse/server/initialization"
)

// absent is a create whose object is stored and not yet initialized, and whose
// handler has returned instead of waiting: its stack and all it held is free
// while the creator waits (S11.24). Its zero value is a create like any other.
type absent struct {
	mu struct {
		sync.Mutex
		// answered is set once there is an answer, creation once there shall be
		// none from the handler: never both.
		answered bool
		creation *initialization.Creation
		deadline time.Time
	}
}

// leave is called by the storage, in whose context the request ends at the
// deadline. It returns false when there is an answer already.
func (a *absent) leave(ctx context.Context, c *initialization.Creation) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.answered {
		return false
	}
	a.mu.creation = c
	a.mu.deadline, _ = ctx.Deadline()
	return true
}

func (a *absent) left() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.creation != nil
}

// answers tells whether an answer of the handler may go out.
func (a *absent) answers() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.creation != nil {
		return false
	}
	a.mu.answered = true
	return true
}

// watching passes on what a handler answers, unless the creator has left.
func (a *absent) watching(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		next(responsewriter.WrapForHTTP1Or2(&absentWriter{ResponseWriter: w, absent: a}), req)
	}
}

type absentWriter struct {
	http.ResponseWriter
	absent *absent
}

var _ responsewriter.UserProvidedDecorator = (*absentWriter)(nil)

func (w *absentWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *absentWriter) Header() http.Header {
	if w.absent.left() {
		return http.Header{}
	}
	return w.ResponseWriter.Header()
}

func (w *absentWriter) WriteHeader(code int) {
	if w.absent.answers() {
		w.ResponseWriter.WriteHeader(code)
	}
}

func (w *absentWriter) Write(data []byte) (int, error) {
	if w.absent.answers() {
		return w.ResponseWriter.Write(data)
	}
	return len(data), nil
}

// wait returns what waits for the object, once the handler has returned. It holds
// on to nothing else of the request.
func (a *absent) wait() func(context.Context) (runtime.Object, error) {
	creation, deadline := a.mu.creation, a.mu.deadline
	return func(ctx context.Context) (runtime.Object, error) { return creation.WaitUntil(ctx, deadline) }
}

// answer answers a create that waited.
func (e *Endpoint) answer(w http.ResponseWriter, req *http.Request, created runtime.Object, err error) {
	gv := e.Scope.Kind.GroupVersion()
	if err != nil {
		responsewriters.ErrorNegotiated(err, e.Scope.Serializer, gv, w, req)
		return
	}
	responsewriters.WriteObjectNegotiated(e.Scope.Serializer, e.Scope, gv, w, req, http.StatusCreated, created, false)
}

// leave has the request answered when all handlers have returned, and then calls
// done. It returns false when that cannot be: a request that is logged is not over
// for the log before it is answered.
func (e *Endpoint) leave(info *request.RequestInfo, w http.ResponseWriter, req *http.Request, wait func(context.Context) (runtime.Object, error), done func()) bool {
	inner := req.Context()
	record := audited(inner)
	if record != nil {
		// The library took the end of the handler's work for an answer.
		record.LogResponseObject(nil, nil)
		record.SetEventResponseStatus(nil)
	}
	if klog.V(3).Enabled() {
		return false
	}
	received, _ := request.ReceivedTimestampFrom(inner)
	user, _ := request.UserFrom(inner)
	values := request.WithUser(request.WithReceivedTimestamp(request.WithRequestInfo(context.Background(), info), received), user)
	if record != nil {
		values = context.WithoutCancel(inner)
	}
	header := w.Header().Clone()
	left := inflight.Leave(inner, func(w http.ResponseWriter, req *http.Request) {
		defer done()
		created, err := wait(req.Context())
		maps.Copy(w.Header(), header)
		req = req.WithContext(remembering{req.Context(), values})
		if record != nil {
			record.SetEventResponseStatus(nil)
		}
		code := e.count(info, w, req, func(w http.ResponseWriter, req *http.Request) bool {
			e.answer(w, req, created, err)
			return true
		})
		if record != nil {
			record.SetEventResponseStatusCode(int32(code))
			record.ProcessEventStage(req.Context(), auditinternal.StageResponseComplete)
		}
	})
	if left && record != nil {
		record.SetEventResponseStatus(unanswered)
	}
	return left
}

// remembering is a context that ends like one and has the values of another, before
// its own.
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

// audited returns the record of a request that is audited, nil for others. Enabled
// would say so of all requests of a server that has no audit log.
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

// unanswered is the status of an audited request whose handlers have returned and
// that is to be answered later.
var unanswered = &metav1.Status{Message: "not yet answered"}

// AuditBackend returns a backend that leaves out what the library tells of requests
// that are not yet answered, as if they were. A server with an audit log needs it.
func AuditBackend(inner audit.Backend) audit.Backend { return auditBackend{inner} }

type auditBackend struct{ audit.Backend }

func (b auditBackend) ProcessEvents(events ...*auditinternal.Event) bool {
	events = slices.DeleteFunc(slices.Clone(events), func(e *auditinternal.Event) bool { return e.ResponseStatus == unanswered })
	return len(events) == 0 || b.Backend.ProcessEvents(events...)
}

// uncounted serves a request that is not counted.
func uncounted(_ *request.RequestInfo, w http.ResponseWriter, req *http.Request, serve func(http.ResponseWriter, *http.Request) bool) int {
	serve(w, req)
	return 0
}

// count serves a request and counts it, unless serve says that it is not answered
// yet. It returns the code of the answer.
func (e *Endpoint) count(info *request.RequestInfo, w http.ResponseWriter, req *http.Request, serve func(http.ResponseWriter, *http.Request) bool) int {
	received, ok := request.ReceivedTimestampFrom(req.Context())
	if !ok {
		received = time.Now()
	}
	delegate := &metrics.ResponseWriterDelegator{ResponseWriter: w}
	if !serve(responsewriter.WrapForHTTP1Or2(delegate), req) {
		return 0
	}
	metrics.MonitorRequest(req, strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, info.Subresource,
		metrics.CleanScope(info), metrics.APIServerComponent, e.Deprecated, e.RemovedRelease, delegate.Status(), delegate.ContentLength(), time.Since(received))
	return delegate.Status()
}
