package resources

import (
	"context"
	"net/http"
	"slices"
	"sort"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
)

// verb is an operation that a storage may have.
type verb struct {
	name string
	// has reports whether a storage has the verb: whether it implements an interface.
	has func(rest.Storage) bool
	// at reports whether a path has the verb.
	at func(*call) bool
	// serve returns the handler of k8s.io/apiserver for the storage, which this server wraps in its
	// additions. It returns nil for a path that does not have the verb.
	serve func(*call) http.HandlerFunc
}

// verbs are all verbs except for connections, in the order in which discovery shows them.
var verbs = []verb{
	{"create", either[rest.Creater, rest.NamedCreater], inPlace, (*call).create},
	{"delete", is[rest.GracefulDeleter], oneInPlace, (*call).delete},
	{"deletecollection", is[rest.CollectionDeleter], allInPlace, (*call).deleteCollection},
	{"get", either[rest.Getter, rest.GetterWithOptions], readable, (*call).get},
	{"list", is[rest.Lister], anywhere, (*call).list},
	{"patch", is[rest.Patcher], oneInPlace, (*call).patch},
	{"update", is[rest.Updater], oneInPlace, (*call).update},
	{"watch", both[rest.Lister, rest.Watcher], anywhere, (*call).watch},
}

func is[T any](s rest.Storage) bool {
	_, ok := s.(T)
	return ok
}

func either[T, U any](s rest.Storage) bool { return is[T](s) || is[U](s) }

func both[T, U any](s rest.Storage) bool { return is[T](s) && is[U](s) }

// Writes to namespaced resources need the namespace.
func inPlace(c *call) bool    { return !c.Discovery.Namespaced || c.info.Namespace != "" }
func oneInPlace(c *call) bool { return inPlace(c) && c.info.Name != "" }
func allInPlace(c *call) bool { return inPlace(c) && c.info.Name == "" }
func readable(c *call) bool   { return c.info.Name != "" && (inPlace(c) || is[Unplaced](c.Storage)) }
func anywhere(*call) bool     { return true }

// verbsOf lists the verbs of a storage, in the order in which discovery shows them.
func verbsOf(storage rest.Storage) metav1.Verbs {
	var list metav1.Verbs
	for _, v := range verbs {
		if v.has(storage) {
			list = append(list, v.name)
		}
	}
	if connecter, ok := storage.(rest.Connecter); ok {
		for _, method := range connecter.ConnectMethods() {
			if verb := connectVerbs[method]; verb != "" && !slices.Contains(list, verb) {
				list = append(list, verb)
			}
		}
	}
	sort.Strings(list)
	return list
}

var connectVerbs = map[string]string{
	"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete",
}

// call is one request at an endpoint. It also is the storage of the request for the handlers of
// k8s.io/apiserver (storage.go).
type call struct {
	*Endpoint
	info *request.RequestInfo
	req  *http.Request
	// admit is the admission chain of a write. A create, an update or a patch of an object also has own.
	admit admission.Interface
	own   *ownFields
	// bare means that the client may get tables or bare metadata.
	bare bool
	// waits means that a creator waits until its object is initialized, unless the request opts
	// out.
	waits bool
	// listing caches data of the objects of a list; nil if nothing is looked up.
	listing *initialization.Listing
	// minWatch is Handler.MinWatch.
	minWatch time.Duration
	// counting is Handler.Counting.
	counting func(user string) bool
	// uninitialized is set when the call created an object that is not initialized.
	uninitialized bool
	// mayLeave means that a create may wait after the handlers have returned. It then waits for
	// creation, until the deadline if there is one.
	mayLeave bool
	creation *initialization.Creation
	deadline time.Time
}

// handler returns the handler of the request; nil when the endpoint does not have the verb or
// the verb does not exist at the path.
func (c *call) handler() http.HandlerFunc {
	if connecter, ok := c.Storage.(rest.Connecter); ok {
		if c.info.Name == "" || !slices.Contains(connecter.ConnectMethods(), c.req.Method) {
			return nil
		}
		return handlers.ConnectResource(connecter, c.Scope, c.admit, c.Discovery.Name, c.info.Subresource != "")
	}
	if c.req.Method == http.MethodHead && !c.Custom {
		// As at kube-apiserver. A HEAD of a list would cost as much as the list.
		return nil
	}
	for _, v := range verbs {
		if v.name == c.info.Verb && v.has(c.Storage) && v.at(c) {
			return v.serve(c)
		}
	}
	return nil
}

func (c *call) get() http.HandlerFunc {
	if g, ok := c.Storage.(rest.GetterWithOptions); ok {
		return handlers.GetResourceWithOptions(g, c.Scope, c.info.Subresource != "")
	}
	return handlers.GetResource(c, c.Scope)
}

func (c *call) list() http.HandlerFunc {
	if c.Custom {
		// The conversion of custom resources may wait for a webhook.
		return c.listOrWatch(false)
	}
	return func(w http.ResponseWriter, req *http.Request) {
		ctx, end := inflight.WithTurns(c.lookUp(req))
		defer end()
		c.listOrWatch(false)(AnsweringWith(w, func(http.Header) { end() }), req.WithContext(ctx))
	}
}

// lookUp returns a context with which the store looks up the cached data of the objects of a list.
// Tables are made of objects, and so is the audit log of responses.
func (c *call) lookUp(req *http.Request) context.Context {
	ctx := req.Context()
	if c.bare || audit.AuditContextFrom(audit.WithAuditContext(ctx)).GetEventLevel().GreaterOrEqual(auditapi.LevelRequestResponse) {
		return ctx
	}
	mediaType, info, err := negotiation.NegotiateOutputMediaType(req, c.Scope.Serializer, c.Scope)
	if err != nil || mediaType.Convert != nil {
		return ctx
	}
	ctx, codec, listing := initialization.WithListing(ctx, c.Scope.Serializer, info.Serializer, c.Scope.Kind.GroupVersion())
	if listing == nil {
		return ctx
	}
	e, scope := *c.Endpoint, *c.Scope
	scope.Serializer = codec
	e.Scope = &scope
	c.Endpoint, c.listing = &e, listing
	return ctx
}

func (c *call) watch() http.HandlerFunc { return c.listOrWatch(true) }

func (c *call) listOrWatch(forceWatch bool) http.HandlerFunc {
	var watches rest.Watcher
	if is[rest.Watcher](c.Storage) {
		watches = c
	}
	return handlers.ListResource(c, watches, c.Scope, forceWatch, c.minWatch)
}

func (c *call) create() http.HandlerFunc {
	if n, ok := c.Storage.(rest.NamedCreater); ok {
		return handlers.CreateNamedResource(n, c.Scope, c.admit)
	}
	switch {
	case c.info.Subresource != "":
		return handlers.CreateResource(c.Storage.(rest.Creater), c.Scope, c.admit)
	case c.info.Name != "":
		return nil
	}
	c.mayLeave = c.awaits() && !c.bare
	return handlers.CreateResource(c, c.Scope, c.owning())
}

func (c *call) update() http.HandlerFunc { return handlers.UpdateResource(c, c.Scope, c.owning()) }

func (c *call) patch() http.HandlerFunc { return c.Endpoint.patch(c, c.owning()) }

func (c *call) delete() http.HandlerFunc { return handlers.DeleteResource(c, true, c.Scope, c.admit) }

func (c *call) deleteCollection() http.HandlerFunc {
	return handlers.DeleteCollection(c, true, c.Scope, c.admit)
}

// owning returns the admission chain of a write of an object.
func (c *call) owning() admission.Interface {
	c.own = &ownFields{Interface: c.admit}
	return c.own
}
