package resources

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/waiting"
)

// Source finds endpoints. Lookup returns nil for a resource that the Source does not serve. The
// function that it returns with the endpoint is called when the request is over; that function
// may be nil.
type Source interface {
	Lookup(gvr schema.GroupVersionResource, subresource string) (*Endpoint, func())
}

// Unplaced is implemented by a storage of a namespaced resource some of whose objects are in no
// namespace: users with permission to read objects of all namespaces can read each of its objects
// by name without a namespace.
type Unplaced interface{ Unplaced() }

// Handler serves resource requests from its sources. It needs a RequestInfo in
// the request's context and is safe for concurrent use.
type Handler struct {
	// Sources are asked in order.
	Sources []Source
	// Await, if set, is called for a resource that no source has. It waits for a resource that is
	// about to be served, and reports whether it waited.
	Await func(context.Context, schema.GroupResource) bool
	// Admission is the admission chain for every write.
	Admission admission.Interface
	// Initializers is set when the plugin of that name is on: objects that are not yet initialized
	// are hidden from readers that do not ask for them, and creators wait.
	Initializers bool
	// Authorizer decides whether a user may get an uninitialized object without asking for such
	// objects; nil means that no user may.
	Authorizer upstream.Authorizer
	// Counting reports whether a user creates as many objects as it finds missing. Such a user must
	// not treat a create as failed whose object is stored and waits for initializers (S11.64). Nil
	// means that no user does so.
	Counting func(user string) bool
	// MinWatch is the shortest time of a watch without a timeout of its own; 0 means 30 minutes. Each
	// such watch gets a random time between MinWatch and twice MinWatch.
	MinWatch time.Duration
	// NotFound answers requests that are not about resources.
	NotFound http.Handler
	// Uncounted excludes the requests of this handler from the metrics of requests.
	Uncounted bool
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest {
		h.NotFound.ServeHTTP(w, req)
		return
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	e, done := h.lookup(gvr, info.Subresource)
	if e == nil && h.Await != nil && h.Await(req.Context(), gvr.GroupResource()) {
		e, done = h.lookup(gvr, info.Subresource)
	}
	defer func() {
		if done != nil {
			done()
		}
	}()
	if e == nil || !e.at(info) {
		notServed(gvr, w, req)
		return
	}
	for _, text := range e.Warnings {
		warning.AddWarning(req.Context(), "", text)
	}
	req = h.read(info, req)
	if e.Bind != nil {
		bound := *e
		bound.Scope = e.Bind(req.Context())
		e = &bound
	}
	if h.Initializers {
		e, req = withMetadata(e, info, req)
	}
	c := h.newCall(e, info, req)
	handler := c.handler()
	if handler == nil {
		responsewriters.ErrorNegotiated(apierrors.NewMethodNotSupported(gvr.GroupResource(), verbName(info, req)),
			e.Scope.Serializer, gvr.GroupVersion(), w, req)
		return
	}
	if err := e.refuses(info, req); err != nil {
		responsewriters.ErrorNegotiated(err, e.Scope.Serializer, gvr.GroupVersion(), w, req)
		return
	}
	serve := func(w http.ResponseWriter, req *http.Request) (answered bool) {
		w = answeringWith(w, c.code)
		if !c.mayLeave {
			handler(w, req)
			return true
		}
		if !waiting.Serve(handler, w, req) {
			return true
		}
		c.finish(w, req, done)
		done = nil
		return false
	}
	if h.Uncounted {
		serve(w, req)
		return
	}
	e.serveCounted(info, w, req, serve)
}

// StorageOf returns the storage of a resource; nil for a resource that is not served. done must be called when the
// storage is no longer used.
func (h *Handler) StorageOf(gvr schema.GroupVersionResource, subresource string) (storage rest.Storage, done func()) {
	e, ended := h.lookup(gvr, subresource)
	if ended == nil {
		ended = func() {}
	}
	if e == nil {
		return nil, ended
	}
	return e.Storage, ended
}

func (h *Handler) lookup(gvr schema.GroupVersionResource, subresource string) (*Endpoint, func()) {
	for _, s := range h.Sources {
		if e, done := s.Lookup(gvr, subresource); e != nil {
			return e, done
		}
	}
	return nil, nil
}

func (h *Handler) newCall(e *Endpoint, info *request.RequestInfo, req *http.Request) *call {
	c := &call{Endpoint: e, info: info, req: req, admit: h.Admission, bare: transforms(req), waits: h.Initializers, counting: h.Counting, minWatch: cmp.Or(h.MinWatch, 30*time.Minute)}
	if e.Admit != nil {
		c.admit = e.Admit(c.admit)
	}
	if unstored := e.storesNothing(info); unstored || info.Subresource != "" {
		// Writes to subresources must not change metadata.initializers (S11.41).
		c.admit = keeping(c.admit, unstored)
	}
	return c
}

func verbName(info *request.RequestInfo, req *http.Request) string {
	if info.Verb != "" && req.Method != http.MethodHead {
		return info.Verb
	}
	return strings.ToLower(req.Method)
}

// Static is a Source with a fixed set of endpoints.
type Static map[schema.GroupVersionResource]map[string]*Endpoint

// Add adds the endpoints of one group version to the source.
func (s Static) Add(endpoints []*Endpoint) {
	for _, e := range endpoints {
		gvr := e.Scope.Resource
		if s[gvr] == nil {
			s[gvr] = map[string]*Endpoint{}
		}
		s[gvr][e.Scope.Subresource] = e
	}
}

// Lookup implements Source.
func (s Static) Lookup(gvr schema.GroupVersionResource, subresource string) (*Endpoint, func()) {
	return s[gvr][subresource], nil
}
