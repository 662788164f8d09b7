package discovery

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// Handler answers discovery requests. It is made by New and safe for concurrent
// use.
type Handler struct {
	addresses discovery.Addresses
	builtin   []Version
	current   atomic.Pointer[picture]

	mu struct {
		sync.Mutex
		custom, remote []Version
	}
}

// New returns a Handler for the built-in group versions, in the order in which clients see groups
// and the versions of a group; the caller no longer changes them. serverAddress is the HOST:PORT
// under which clients reach the server. The error names a subresource whose scope differs from its
// resource's.
func New(serverAddress string, builtin []Version) (*Handler, error) {
	h := &Handler{addresses: discovery.DefaultAddresses{DefaultAddress: serverAddress}, builtin: builtin}
	return h, h.SetCustom(nil)
}

// SetCustom replaces the served versions of custom resources; the caller no longer changes them.
// The versions of a group are in order of preference, the groups in any order. Requests that begin
// after SetCustom returns see the change. After an error, of the same kind as an error of New,
// everything stays as it was. A call takes some microseconds per resource of the whole server.
func (h *Handler) SetCustom(versions []Version) error {
	for i := range versions {
		versions[i].custom = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.set(versions, h.mu.remote)
}

// SetRemote replaces the served group versions of other servers, as SetCustom does for custom
// resources. A remote version hides a version of this server.
func (h *Handler) SetRemote(versions []Version) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.set(h.mu.custom, versions)
}

// set makes a new snapshot; mu is held.
func (h *Handler) set(custom, remote []Version) error {
	p, err := newPicture(merge(h.builtin, custom, remote), h.addresses)
	if err != nil {
		return err
	}
	h.mu.custom, h.mu.remote = custom, remote
	h.current.Store(p)
	return nil
}

// Handles reports whether path is a path of discovery.
func (h *Handler) Handles(path string) bool {
	return h.current.Load().legacy[strings.TrimSuffix(path, "/")] != nil
}

// Paths lists the paths of the groups and versions that this server or another server serves
// now.
func (h *Handler) Paths() []string { return slices.Clone(h.current.Load().paths) }

// ServeHTTP answers a request for a path of Handles. Any other path gets 404: with a Status below a
// built-in group, and with text elsewhere, as kube-apiserver does.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimSuffix(req.URL.Path, "/")
	p := h.current.Load()
	legacy := p.legacy[path]
	if legacy == nil && h.inBuiltin(path) {
		err := apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
		responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{}, w, req)
		return
	}
	if legacy == nil {
		http.NotFound(w, req)
		return
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, req.Method+" is not allowed: discovery is read-only", http.StatusMethodNotAllowed)
		return
	}
	if a := p.aggregated[path]; a != nil {
		media, _ := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), codecs.SupportedMediaTypes(), aggregated.DiscoveryEndpointRestrictions)
		if aggregated.IsAggregatedDiscoveryGVK(media.Convert) {
			aggregated.ServeHTTPWithETag(a.list, a.etag, media.Convert.GroupVersion(), codecs, w, req)
			return
		}
		w.Header().Add("Vary", "Accept")
	}
	legacy.ServeHTTP(w, req)
}

// inBuiltin reports whether path is below a group of the built-in versions.
func (h *Handler) inBuiltin(path string) bool {
	return slices.ContainsFunc(h.builtin, func(v Version) bool {
		return strings.HasPrefix(path, pathOf(v.Group)+"/")
	})
}

// codecs write the kinds of discovery.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(apidiscoveryv2.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme)
}()
