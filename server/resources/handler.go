package resources

import (
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/server/inflight"
)

// minWatch is the shortest a watch without a timeout of its own may last;
// each gets a random length of up to twice that.
const minWatch = 30 * time.Minute

// Source finds endpoints. Lookup returns nil for what it does not serve. The
// function it returns beside the endpoint is called when the request is over;
// it may be nil.
type Source interface {
	Lookup(gvr schema.GroupVersionResource, subresource string) (*Endpoint, func())
}

// Unplaced is implemented by a storage of a namespaced resource some of whose objects are in
// no namespace: all its objects can be read by name without one, by those who may read
// all.
type Unplaced interface{ Unplaced() }

// Handler serves resource requests from its sources. It needs a RequestInfo in
// the request's context and is safe for concurrent use.
type Handler struct {
	// Sources are asked in order.
	Sources []Source
	// Admission judges every write.
	Admission admission.Interface
	// Initializers is set when the plugin of that name is on: objects that are
	// not yet initialized are kept from readers that do not ask for them, and
	// creators wait.
	Initializers bool
	// Authorizer decides who may get an uninitialized object without asking for
	// such objects; nil means nobody may.
	Authorizer authorizer.UnconditionalAuthorizer
	// NotFound answers what is no resource request.
	NotFound http.Handler
	// Uncounted keeps the requests out of the metrics of requests.
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
	if done == nil {
		done = func() {}
	}
	defer func() { done() }()
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
	var absent absent
	handler := h.verb(e, info, req, &absent)
	if handler == nil {
		responsewriters.ErrorNegotiated(apierrors.NewMethodNotSupported(gvr.GroupResource(), verbName(info, req)),
			e.Scope.Serializer, gvr.GroupVersion(), w, req)
		return
	}
	if err := e.refuses(info, req); err != nil {
		responsewriters.ErrorNegotiated(err, e.Scope.Serializer, gvr.GroupVersion(), w, req)
		return
	}
	count := e.count
	if h.Uncounted {
		count = uncounted
	}
	count(info, w, req, func(w http.ResponseWriter, req *http.Request) bool {
		handler(w, req)
		if !absent.left() {
			return true
		}
		wait := absent.wait()
		if e.leave(info, w, req, wait, done) {
			done = func() {}
			return false
		}
		// The initializers need to get in.
		inflight.Yield(req.Context())
		created, err := wait(req.Context())
		e.answer(w, req, created, err)
		return true
	})
}

func (h *Handler) lookup(gvr schema.GroupVersionResource, subresource string) (*Endpoint, func()) {
	for _, s := range h.Sources {
		if e, done := s.Lookup(gvr, subresource); e != nil {
			return e, done
		}
	}
	return nil, nil
}

// verb returns what serves the request at the endpoint, nil when the endpoint
// does not know the verb or the path is not one the verb has. When it has
// returned, a creator that has to wait may be absent.
func (h *Handler) verb(e *Endpoint, info *request.RequestInfo, req *http.Request, absent *absent) http.HandlerFunc {
	admit := h.Admission
	if e.Admit != nil {
		admit = e.Admit(admit)
	}
	if unstored := e.storesNothing(info); unstored || info.Subresource != "" {
		// Writes to subresources must not change metadata.initializers (S11.41).
		admit = keeper{admit, unstored}
	}
	if c, ok := e.Storage.(rest.Connecter); ok {
		if info.Name == "" || !slices.Contains(c.ConnectMethods(), req.Method) {
			return nil
		}
		return handlers.ConnectResource(c, e.Scope, admit, e.Discovery.Name, info.Subresource != "")
	}
	named := info.Name != ""
	// Writes to a collection of a namespaced resource need the namespace.
	placed := !e.Discovery.Namespaced || info.Namespace != ""
	transformed := transforms(req)
	switch info.Verb {
	case "get":
		if _, unplaced := e.Storage.(Unplaced); !named || !placed && !unplaced {
			return nil
		}
		if g, ok := e.Storage.(rest.GetterWithOptions); ok {
			return handlers.GetResourceWithOptions(g, e.Scope, info.Subresource != "")
		}
		if g, ok := e.Storage.(rest.Getter); ok {
			g = plainGetter{g}
			if transformed {
				g = bareGetter{g}
			}
			return handlers.GetResource(g, e.Scope)
		}
	case "list", "watch":
		lister, isLister := e.Storage.(rest.Lister)
		watcher, isWatcher := e.Storage.(rest.Watcher)
		if transformed && isLister {
			lister = bareLister{lister}
		}
		if isWatcher {
			watcher = plainWatcher{watcher}
		}
		if transformed && isWatcher {
			watcher = bareWatcher{watcher}
		}
		if (info.Verb == "list" && isLister) || (info.Verb == "watch" && isWatcher && isLister) {
			return handlers.ListResource(lister, watcher, e.Scope, info.Verb == "watch", minWatch)
		}
	case "create":
		if !placed {
			return nil
		}
		if c, ok := e.Storage.(rest.NamedCreater); ok {
			return handlers.CreateNamedResource(c, e.Scope, admit)
		}
		if c, ok := e.Storage.(rest.Creater); ok && (!named || info.Subresource != "") {
			if info.Subresource != "" {
				return handlers.CreateResource(c, e.Scope, admit)
			}
			c = plainCreater{c, e.Kind}
			if !h.Initializers {
				return handlers.CreateResource(c, e.Scope, admit)
			}
			wait := !includesUninitialized(req)
			if wait && !transformed {
				c = creator{c, absent.leave}
			} else if wait {
				c = creator{Creater: c}
			}
			return accepting(func(accepted *bool) http.HandlerFunc {
				var c rest.Creater = telling{c, accepted}
				if transformed {
					c = bareCreater{c}
				}
				return absent.watching(handlers.CreateResource(c, e.Scope, admit))
			})
		}
	case "update":
		if u, ok := e.Storage.(rest.Updater); ok && named && placed {
			return accepting(func(accepted *bool) http.HandlerFunc {
				return handlers.UpdateResource(updater{creatingUpdater{u, accepted}, e.Kind, transformed}, e.Scope, admit)
			})
		}
	case "patch":
		if p, ok := e.Storage.(rest.Patcher); ok && named && placed {
			return accepting(func(accepted *bool) http.HandlerFunc {
				return e.patch(patcher{creatingPatcher{p, accepted}, e.Kind, transformed}, admit)
			})
		}
	case "delete":
		if d, ok := e.Storage.(rest.GracefulDeleter); ok && named && placed {
			if transformed {
				d = bareDeleter{d}
			}
			return handlers.DeleteResource(d, true, e.Scope, admit)
		}
	case "deletecollection":
		if d, ok := e.Storage.(rest.CollectionDeleter); ok && !named && placed {
			if transformed {
				d = bareCollectionDeleter{d}
			}
			return handlers.DeleteCollection(d, true, e.Scope, admit)
		}
	}
	return nil
}

func verbName(info *request.RequestInfo, req *http.Request) string {
	if info.Verb != "" {
		return info.Verb
	}
	return strings.ToLower(req.Method)
}

// Static is a Source with a fixed set of endpoints.
type Static map[schema.GroupVersionResource]map[string]*Endpoint

// Add puts the endpoints of one group version into the source.
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
