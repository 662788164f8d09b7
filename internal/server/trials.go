package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// Serve answers a request that comes through no connection. The request needs no credentials: its
// user is the server itself, or the user that its headers impersonate. Serve returns the trace of
// admission. The server must be ready and have Options.Rehearsals.
func (s *Server) Serve(w http.ResponseWriter, req *http.Request) *trace.Trace {
	a := s.assembly.Load()
	if a == nil || !s.settings.Rehearsals {
		panic("server: Serve and Rehearse need a server that is ready and has Options.Rehearsals")
	}
	t := trace.New()
	req = req.WithContext(trace.NewContext(req.Context(), t))
	req.Header.Set("Authorization", "Bearer "+a.loopback.config.BearerToken)
	req.RequestURI = req.URL.RequestURI()
	a.generic.Handler.ServeHTTP(w, req)
	t.Finish()
	return t
}

// Rehearse answers a request as Serve does, and stores nothing. A Rehearsal is used once.
func (s *Server) Rehearse(w http.ResponseWriter, req *http.Request, r *Rehearsal) {
	if !r.Connect {
		query := req.URL.Query()
		query.Set("dryRun", metav1.DryRunAll)
		req.URL.RawQuery = query.Encode()
	}
	r.trace = s.Serve(w, req.WithContext(context.WithValue(req.Context(), rehearsalKey{}, r)))
}

// Attempt is the outcome of a write that was tried.
type Attempt struct {
	// Tried is nil when the write was rejected.
	*resources.Tried
	// Status is the reason why the write was rejected; nil when it was not.
	Status   *metav1.Status
	Warnings []string
}

// attemptTime bounds the evaluation of a write. It is the time that a request has.
const attemptTime = 34 * time.Second

// Try evaluates a create, an update or a deletion as Rehearse does, in a fraction of its time, and
// without authorization. ok is false for a write that only Rehearse can evaluate; the caller can
// then pass the same Rehearsal to Rehearse. The object of an update or a deletion must be among the
// stored objects of the Rehearsal.
func (s *Server) Try(ctx context.Context, t *resources.Trial, who user.Info, r *Rehearsal) (attempt *Attempt, ok bool) {
	a := s.assembly.Load()
	if a == nil || !s.settings.Rehearsals {
		panic("server: Try needs a server that is ready and has Options.Rehearsals")
	}
	if r.Authorize || r.Connect {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	r.trace = trace.New()
	ctx = trace.NewContext(context.WithValue(ctx, rehearsalKey{}, r), r.trace)
	ctx = request.WithUser(ctx, who)
	verb := strings.ToLower(string(t.Operation))
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIPrefix: "apis", APIGroup: t.Resource.Group, APIVersion: t.Resource.Version,
		Namespace: t.Namespace, Resource: t.Resource.Resource, Subresource: t.Subresource, Name: t.Name,
	})
	noted := &notedWarnings{}
	ctx = warning.WithWarningRecorder(ctx, noted)
	r.admitted.Store(true)
	tried, err := a.api.handler.Try(ctx, t)
	r.trace.Finish()
	if errors.Is(err, resources.ErrOnlyServed) {
		r.admitted.Store(false)
		r.mu.Lock()
		r.mu.annotations = nil
		r.mu.Unlock()
		return nil, false
	}
	attempt = &Attempt{Tried: tried, Warnings: noted.list()}
	if err != nil {
		attempt.Status = responsewriters.ErrorToAPIStatus(err)
	}
	return attempt, true
}

// AsStored returns an object in JSON as a create would store it without validation and admission. A resource that is
// not served is an error.
func (s *Server) AsStored(ctx context.Context, resource schema.GroupVersionResource, namespace string, object []byte) ([]byte, error) {
	return s.assembly.Load().api.handler.AsStored(ctx, resource, namespace, object)
}

// notedWarnings keeps the warnings of a write, each once, in order.
type notedWarnings struct {
	mu    sync.Mutex
	texts []string
}

// AddWarning implements warning.Recorder.
func (n *notedWarnings) AddWarning(_, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if text != "" && !slices.Contains(n.texts, text) {
		n.texts = append(n.texts, text)
	}
}

func (n *notedWarnings) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.texts)
}
