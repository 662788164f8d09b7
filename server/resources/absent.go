package resources

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

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
// done. It returns false when that cannot be: a request that is audited or logged
// is not over for those who do that before it is answered.
func (e *Endpoint) leave(info *request.RequestInfo, w http.ResponseWriter, req *http.Request, wait func(context.Context) (runtime.Object, error), done func()) bool {
	ctx := req.Context()
	if audited(ctx) || klog.V(3).Enabled() {
		return false
	}
	header := w.Header().Clone()
	received, _ := request.ReceivedTimestampFrom(ctx)
	user, _ := request.UserFrom(ctx)
	return inflight.Leave(ctx, func(w http.ResponseWriter, req *http.Request) {
		defer done()
		created, err := wait(req.Context())
		maps.Copy(w.Header(), header)
		ctx := request.WithUser(request.WithReceivedTimestamp(request.WithRequestInfo(req.Context(), info), received), user)
		e.count(info, w, req.WithContext(ctx), func(w http.ResponseWriter, req *http.Request) bool {
			e.answer(w, req, created, err)
			return true
		})
	})
}

// audited tells whether a request is. Enabled would say so of all requests of a
// server that has no audit log.
func audited(ctx context.Context) bool {
	ac := audit.AuditContextFrom(ctx)
	if ac == nil {
		return false
	}
	level := ac.GetEventLevel()
	return level != "" && level != auditinternal.LevelNone
}

// count serves a request and counts it, unless serve says that it is not answered
// yet.
func (e *Endpoint) count(info *request.RequestInfo, w http.ResponseWriter, req *http.Request, serve func(http.ResponseWriter, *http.Request) bool) {
	received, ok := request.ReceivedTimestampFrom(req.Context())
	if !ok {
		received = time.Now()
	}
	delegate := &metrics.ResponseWriterDelegator{ResponseWriter: w}
	if !serve(responsewriter.WrapForHTTP1Or2(delegate), req) {
		return
	}
	metrics.MonitorRequest(req, strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, info.Subresource,
		metrics.CleanScope(info), metrics.APIServerComponent, e.Deprecated, e.RemovedRelease, delegate.Status(), delegate.ContentLength(), time.Since(received))
}
