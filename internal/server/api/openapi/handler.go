package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/NYTimes/gziphandler"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	handler2 "k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// Options are the kinds that a Handler documents. Models and at least one endpoint must be set.
type Options struct {
	// Models has the definitions of all kinds of the endpoints.
	Models *Models
	// Endpoints are the endpoints of the built-in kinds.
	Endpoints []*resources.Endpoint
	// Version is the release that documents name, such as "v1.37.2".
	Version string
	// Custom documents custom resources; nil if there are none.
	Custom Custom
}

// Custom documents custom resources.
type Custom interface {
	// OpenAPIV3 returns the document of a group version, nil if there is none.
	OpenAPIV3(schema.GroupVersion) (*spec3.OpenAPI, error)
	// OpenAPIV2 returns a copy of static with the custom resources added. It does not change
	// static.
	OpenAPIV2(static *spec.Swagger) (*spec.Swagger, error)
}

// CustomVersion is a group version for which Custom has a document.
type CustomVersion struct {
	schema.GroupVersion
	// Tag changes whenever the document does. With an empty tag the document is treated as changed
	// at every SetCustom.
	Tag string
}

// Remote are the documents of other servers. The caller no longer changes them.
type Remote struct {
	// V2 are v2 documents to add to the v2 document of this server. Tag changes whenever one of
	// these documents changes.
	V2  []*spec.Swagger
	Tag string
	// V3 are v3 documents by name, such as apis/example.com/v1.
	V3 map[string]RemoteDocument
}

// RemoteDocument is a v3 document of another server.
type RemoteDocument struct {
	// URL is the path and query under which Handler serves the document.
	URL     string
	Handler http.Handler
}

// OldPath is where kubectl up to 1.9 reads OpenAPI v2: always in protobuf, whatever its Accept
// header is.
const OldPath = "/swagger-2.0.0.pb-v1"

// Handler serves /openapi/v2, /openapi/v3 and OldPath. It is made by New and safe for
// concurrent use.
type Handler struct {
	options Options
	v2, old http.Handler
	builtin map[string]*document

	// mu is not held while a document is built.
	mu struct {
		sync.Mutex
		swagger *document
		custom  map[string]customDocument
		remote  Remote
	}
}

type customDocument struct {
	*document
	tag string
}

var (
	protobuf2 = protobuf{
		mediaType: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
		old:       "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
		encode:    handler2.ToProtoBinary,
	}
	// The media type that Kubernetes 1.8 gives the document has an "@", which the clients of that
	// time cannot parse; its server sent the document without it.
	protobufOld = protobuf{mediaType: "application/octet-stream", only: true, encode: encodeOld}
	protobuf3   = protobuf{
		mediaType: "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
		old:       "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
		encode:    handler3.ToV3ProtoBinary,
	}
)

// New returns a Handler. It builds no document.
func New(o Options) *Handler {
	h := &Handler{options: o, builtin: map[string]*document{}}
	versions, byVersion := h.versions()
	var groups []string
	for _, gv := range versions {
		h.builtin[path(gv)] = &document{build: func() ([]byte, error) { return h.buildVersion(gv, byVersion[gv]) }}
		if !slices.Contains(groups, gv.Group) {
			groups = append(groups, gv.Group)
		}
	}
	for name, operations := range rootOperations(o.Endpoints[0].Scope.Serializer, groups) {
		h.builtin[name] = &document{build: func() ([]byte, error) {
			return h.build3(schema.GroupVersion{}, operations())
		}}
	}
	h.v2 = gziphandler.GzipHandler(h.serveV2(protobuf2))
	h.old = gziphandler.GzipHandler(h.serveV2(protobufOld))
	h.SetCustom(nil)
	return h
}

// versions lists the built-in group versions in order, with their endpoints.
func (h *Handler) versions() ([]schema.GroupVersion, map[schema.GroupVersion][]*resources.Endpoint) {
	var order []schema.GroupVersion
	byVersion := map[schema.GroupVersion][]*resources.Endpoint{}
	for _, e := range h.options.Endpoints {
		gv := e.Scope.Resource.GroupVersion()
		if byVersion[gv] == nil {
			order = append(order, gv)
		}
		byVersion[gv] = append(byVersion[gv], e)
	}
	return order, byVersion
}

// path is the name of a group version's document, such as "apis/apps/v1".
func path(gv schema.GroupVersion) string {
	return strings.TrimPrefix(root(gv), "/") + "/" + gv.String()
}

// SetCustom sets the group versions for which Options.Custom has documents. It is called when these
// group versions, or a document, have changed. A group version with built-in kinds keeps its own
// document.
func (h *Handler) SetCustom(versions []CustomVersion) {
	custom := make(map[string]customDocument, len(versions))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range versions {
		name := path(v.GroupVersion)
		if have, ok := h.mu.custom[name]; ok && v.Tag != "" && have.tag == v.Tag {
			custom[name] = have
			continue
		}
		custom[name] = customDocument{tag: v.Tag, document: &document{build: func() ([]byte, error) {
			return h.buildCustom(v.GroupVersion)
		}}}
	}
	h.mu.custom = custom
	h.mu.swagger = &document{build: h.build2}
}

// SetRemote replaces the documents of other servers. Such a document replaces the document of a
// custom group version, never the document of a built-in one.
func (h *Handler) SetRemote(remote Remote) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if remote.Tag != h.mu.remote.Tag {
		h.mu.swagger = &document{build: h.build2}
	}
	h.mu.remote = remote
}

// remote returns the document of another server by name, nil if there is none.
func (h *Handler) remote(name string) *RemoteDocument {
	if h.builtin[name] != nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if d, ok := h.mu.remote.V3[name]; ok {
		return &d
	}
	return nil
}

// lookup returns a v3 document by name, nil if there is none.
func (h *Handler) lookup(name string) *document {
	if d := h.builtin[name]; d != nil {
		return d
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.custom[name].document
}

// documents returns all v3 documents by name.
func (h *Handler) documents() map[string]*document {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]*document, len(h.builtin)+len(h.mu.custom))
	for name, d := range h.mu.custom {
		all[name] = d.document
	}
	maps.Copy(all, h.builtin)
	return all
}

// Handles reports whether there is a document at path, or a list of them.
func (h *Handler) Handles(path string) bool {
	switch path {
	case "/openapi/v2", "/openapi/v3", OldPath:
		return true
	}
	name, ok := strings.CutPrefix(path, "/openapi/v3/")
	return ok && (h.lookup(name) != nil || h.remote(name) != nil)
}

// ServeHTTP answers a request for a path of Handles. Any other path gets 404.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !h.Handles(req.URL.Path) {
		http.NotFound(w, req)
		return
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, req.Method+" is not allowed: documents are read-only", http.StatusMethodNotAllowed)
		return
	}
	switch req.URL.Path {
	case "/openapi/v2":
		h.v2.ServeHTTP(w, req)
	case OldPath:
		h.old.ServeHTTP(w, req)
	case "/openapi/v3":
		h.serveList(w, req)
	default:
		h.serveV3(w, req, strings.TrimPrefix(req.URL.Path, "/openapi/v3/"))
	}
}

func (h *Handler) serveV2(p protobuf) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		h.mu.Lock()
		d := h.mu.swagger
		h.mu.Unlock()
		fail(w, req, d.serve(w, req, p, nil))
	}
}

func (h *Handler) serveV3(w http.ResponseWriter, req *http.Request, name string) {
	if remote := h.remote(name); remote != nil {
		remote.Handler.ServeHTTP(w, req)
		return
	}
	d := h.lookup(name)
	if d == nil {
		http.NotFound(w, req)
		return
	}
	fail(w, req, d.serve(w, req, protobuf3, func(etag string) string { return location(name, etag) }))
}

func location(name, etag string) string {
	return (&url.URL{Path: "/openapi/v3/" + name, RawQuery: url.Values{"hash": {etag}}.Encode()}).String()
}

// serveList answers with the names of all v3 documents and their hashes.
func (h *Handler) serveList(w http.ResponseWriter, req *http.Request) {
	documents := h.documents()
	if slices.ContainsFunc(slices.Collect(maps.Values(documents)), func(d *document) bool { return d.etag() == "" }) {
		definitions := h.options.Models.hold()
		defer runtime.KeepAlive(definitions)
	}
	list := handler3.OpenAPIV3Discovery{Paths: make(map[string]handler3.OpenAPIV3DiscoveryGroupVersion, len(documents))}
	for name, d := range documents {
		etag, err := d.hash()
		if err != nil {
			utilruntime.HandleErrorWithContext(req.Context(), err, "Could not build an OpenAPI document; omitting it from the list", "document", name)
			continue
		}
		list.Paths[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: location(name, etag)}
	}
	h.mu.Lock()
	remote := h.mu.remote.V3
	h.mu.Unlock()
	for name, d := range remote {
		if h.builtin[name] == nil {
			list.Paths[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: d.URL}
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		fail(w, req, err)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
}

// fail answers a request whose document could not be built.
func fail(w http.ResponseWriter, req *http.Request, err error) {
	if err == nil {
		return
	}
	utilruntime.HandleErrorWithContext(req.Context(), err, "Could not build an OpenAPI document", "path", req.URL.Path)
	http.Error(w, fmt.Sprintf("the document at %s cannot be built: %v", req.URL.Path, err), http.StatusInternalServerError)
}
