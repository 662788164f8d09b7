package openapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	explain "k8s.io/kubectl/pkg/explain/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/test/catalogtest"
	_ "github.com/gatehouse-dev/gatehouse/test/speed"
)

// builtin returns options for the built-in kinds.
func builtin(tb testing.TB) openapi.Options {
	o := openapi.Options{Models: openapi.NewModels(nil, legacyscheme.Scheme), Version: "v1.2.3"}
	for _, v := range catalogtest.Build(tb) {
		o.Endpoints = append(o.Endpoints, v.Endpoints...)
	}
	return o
}

var shared struct {
	sync.Once
	options openapi.Options
	handler *openapi.Handler
}

// documents returns the options of the built-in kinds and a handler of their documents, for tests that do not change
// them. The storage of the kinds is closed after the first of these tests; documents do not need it.
func documents(tb testing.TB) (openapi.Options, *openapi.Handler) {
	tb.Helper()
	shared.Do(func() {
		shared.options = builtin(tb)
		shared.handler = openapi.New(shared.options)
	})
	return shared.options, shared.handler
}

func serve(tb testing.TB, h http.Handler) string {
	tb.Helper()
	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)
	return s.URL
}

func client(tb testing.TB, url string) *clientdiscovery.DiscoveryClient {
	tb.Helper()
	c, err := clientdiscovery.NewDiscoveryClientForConfig(&restclient.Config{Host: url})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// get reads one path; header is a list of names and values.
func get(tb testing.TB, url string, header ...string) (*http.Response, []byte) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), "GET", url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return res, body
}

// refs returns every value of "$ref" in a decoded document.
func refs(value any) sets.Set[string] {
	found := sets.New[string]()
	var walk func(any)
	walk = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				found.Insert(ref)
			}
			for _, child := range v {
				walk(child)
			}
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	walk(value)
	return found
}

// resolve reports whether the document has the target of a reference.
func resolve(document map[string]any, ref string) bool {
	var value any = document
	for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		m, ok := value.(map[string]any)
		if !ok {
			return false
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		if value, ok = m[step]; !ok {
			return false
		}
	}
	return true
}

// expected returns the path of an endpoint and the methods there, by path.
func expected(e *resources.Endpoint) map[string][]string {
	gv := e.Scope.Resource.GroupVersion()
	prefix := "/apis/" + gv.String() + "/"
	if gv.Group == "" {
		prefix = "/api/" + gv.Version + "/"
	}
	namespace := ""
	if e.Discovery.Namespaced {
		namespace = "namespaces/{namespace}/"
	}
	resource, subresource, isSub := strings.Cut(e.Discovery.Name, "/")
	collection := prefix + namespace + resource
	item := collection + "/{name}"
	if isSub {
		item += "/" + subresource
		collection = item
	}
	places := map[string][]string{}
	for _, verb := range e.Discovery.Verbs {
		switch verb {
		case "get":
			places[item] = append(places[item], "get")
		case "update":
			places[item] = append(places[item], "put")
		case "patch":
			places[item] = append(places[item], "patch")
		case "delete":
			places[item] = append(places[item], "delete")
		case "create":
			places[collection] = append(places[collection], "post")
		case "list":
			places[collection] = append(places[collection], "get")
			if e.Discovery.Namespaced {
				places[prefix+resource] = append(places[prefix+resource], "get")
			}
		case "deletecollection":
			places[collection] = append(places[collection], "delete")
		case "watch":
			places[prefix+"watch/"+namespace+resource] = append(places[prefix+"watch/"+namespace+resource], "get")
		}
	}
	return places
}

func TestEveryEndpointHasItsOperations(t *testing.T) {
	o, h := documents(t)
	url := serve(t, h)
	documents := map[string]map[string]any{}
	read := func(name string) map[string]any {
		if documents[name] == nil {
			res, body := get(t, url+name)
			if res.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s: %s", name, res.Status, body)
			}
			var document map[string]any
			if err := json.Unmarshal(body, &document); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			documents[name] = document
		}
		return documents[name]
	}
	for _, e := range o.Endpoints {
		gv := e.Scope.Resource.GroupVersion()
		name := "/openapi/v3/apis/" + gv.String()
		if gv.Group == "" {
			name = "/openapi/v3/api/" + gv.Version
		}
		for path, methods := range expected(e) {
			for _, version := range []string{name, "/openapi/v2"} {
				item, _ := read(version)["paths"].(map[string]any)[path].(map[string]any)
				for _, method := range methods {
					operation, ok := item[method].(map[string]any)
					if !ok {
						t.Errorf("%s: there is no %s %s", version, method, path)
						continue
					}
					kind, _ := operation["x-kubernetes-group-version-kind"].(map[string]any)
					want := map[string]any{"group": e.Kind.Group, "version": e.Kind.Version, "kind": e.Kind.Kind}
					if diff := cmp.Diff(want, kind); diff != "" {
						t.Errorf("%s: kind of %s %s (-want +got):\n%s", version, method, path, diff)
					}
					if operation["operationId"] == "" || operation["responses"] == nil {
						t.Errorf("%s: %s %s has no name or no responses", version, method, path)
					}
				}
			}
		}
	}
	for name, document := range documents {
		ids := sets.New[string]()
		for path, item := range document["paths"].(map[string]any) {
			for method, operation := range item.(map[string]any) {
				if m, ok := operation.(map[string]any); ok {
					id, _ := m["operationId"].(string)
					if ids.Has(id) {
						t.Errorf("%s: %s %s is called %s like another operation", name, method, path, id)
					}
					ids.Insert(id)
				}
			}
		}
	}
}

func TestEveryReferenceResolves(t *testing.T) {
	_, h := documents(t)
	url := serve(t, h)
	_, body := get(t, url+"/openapi/v3")
	var list struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	locations := []string{"/openapi/v2"}
	for _, p := range list.Paths {
		locations = append(locations, p.ServerRelativeURL)
	}
	for _, location := range locations {
		res, body := get(t, url+location)
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", location, res.Status)
			continue
		}
		var document map[string]any
		if err := json.Unmarshal(body, &document); err != nil {
			t.Fatalf("%s: %v", location, err)
		}
		for ref := range refs(document) {
			if !resolve(document, ref) {
				t.Errorf("%s: %s leads nowhere", location, ref)
			}
		}
	}
	if len(locations) < 40 {
		t.Errorf("there are only %d documents", len(locations))
	}
}

// readOnce returns a function that reads the document of a group version, once.
func readOnce(t *testing.T, root openapi3.Root) func(schema.GroupVersion) *spec3.OpenAPI {
	have := map[schema.GroupVersion]*spec3.OpenAPI{}
	return func(gv schema.GroupVersion) *spec3.OpenAPI {
		t.Helper()
		if have[gv] == nil {
			document, err := root.GVSpec(gv)
			if err != nil {
				t.Fatalf("%s: %v", gv, err)
			}
			have[gv] = document
		}
		return have[gv]
	}
}

// kubectl apply, diff and --validate need each of these; without one of them they fall back to
// OpenAPI v2 or to the schemas compiled into kubectl, which do not have metadata.initializers.
func TestWhatKubectlNeeds(t *testing.T) {
	o, h := documents(t)
	root := openapi3.NewRoot(client(t, serve(t, h)).OpenAPIV3())
	versions, err := root.GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range o.Endpoints {
		if gv := e.Scope.Resource.GroupVersion(); !slices.Contains(versions, gv) {
			t.Errorf("%s is not in the list", gv)
		}
	}
	read := readOnce(t, root)
	for _, e := range o.Endpoints {
		if !slices.Contains(e.Discovery.Verbs, "patch") || strings.Contains(e.Discovery.Name, "/") {
			continue
		}
		gv := e.Scope.Resource.GroupVersion()
		document := read(gv)
		for path := range expected(e) {
			patch := document.Paths.Paths[path].Patch
			if patch == nil {
				continue
			}
			for _, contentType := range e.PatchTypes {
				if patch.RequestBody.Content[contentType] == nil {
					t.Errorf("%s %s: PATCH does not take %s", gv, path, contentType)
				}
			}
			parameters := sets.New[string]()
			for _, p := range patch.Parameters {
				parameters.Insert(p.Name)
			}
			if !parameters.HasAll("fieldValidation", "dryRun", "fieldManager", "force") {
				t.Errorf("%s %s: PATCH has only the parameters %v", gv, path, sets.List(parameters))
			}
		}
	}
	document := read(schema.GroupVersion{Version: "v1"})
	initializers, ok := document.Components.Schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].Properties["initializers"]
	if !ok {
		t.Fatal("S11.1: metadata has no initializers")
	}
	pending := initializers.Properties["pending"]
	if pending.Extensions["x-kubernetes-patch-merge-key"] != "name" || pending.Extensions["x-kubernetes-patch-strategy"] != "merge" {
		t.Errorf("S11.1: pending has the extensions %v", pending.Extensions)
	}
}

func TestOperationsTakeIncludeUninitialized(t *testing.T) {
	_, h := documents(t)
	root := openapi3.NewRoot(client(t, serve(t, h)).OpenAPIV3())
	document, err := root.GVSpec(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	const pods = "/api/v1/namespaces/{namespace}/pods"
	cases := []struct {
		name      string
		path      string
		operation func(*spec3.Path) *spec3.Operation
		want      bool
	}{
		{"S11.31 list", pods, func(p *spec3.Path) *spec3.Operation { return p.Get }, true},
		{"S11.31 list everywhere", "/api/v1/pods", func(p *spec3.Path) *spec3.Operation { return p.Get }, true},
		{"S11.26 create", pods, func(p *spec3.Path) *spec3.Operation { return p.Post }, true},
		{"S11.33 get", pods + "/{name}", func(p *spec3.Path) *spec3.Operation { return p.Get }, true},
		{"S11.34 update", pods + "/{name}", func(p *spec3.Path) *spec3.Operation { return p.Put }, false},
		{"S11.34 delete", pods + "/{name}", func(p *spec3.Path) *spec3.Operation { return p.Delete }, false},
		{"S11.35 deletecollection", pods, func(p *spec3.Path) *spec3.Operation { return p.Delete }, false},
		{"S11.41 a subresource", pods + "/{name}/status", func(p *spec3.Path) *spec3.Operation { return p.Get }, false},
		{"S11.41 creation of a subresource", pods + "/{name}/eviction", func(p *spec3.Path) *spec3.Operation { return p.Post }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			item := document.Paths.Paths[c.path]
			if item == nil || c.operation(item) == nil {
				t.Fatalf("there is no such operation at %s", c.path)
			}
			named := func(p *spec3.Parameter) bool { return p.Name == "includeUninitialized" }
			if got := slices.ContainsFunc(append(c.operation(item).Parameters, item.Parameters...), named); got != c.want {
				t.Errorf("takes includeUninitialized: %t, want %t", got, c.want)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	_, h := documents(t)
	url := serve(t, h)
	v3 := client(t, url).OpenAPIV3()
	cases := []struct {
		resource  schema.GroupVersionResource
		fields    string
		recursive bool
		want      []string
	}{
		{
			resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, fields: "spec.containers",
			want: []string{"KIND:       Pod", "FIELD: containers <[]Container>", "imagePullPolicy", "enum: Always, IfNotPresent, Never", "-required-"},
		},
		{
			resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, recursive: true,
			want: []string{"GROUP:      apps", "KIND:       Deployment", "revisionHistoryLimit", "topologySpreadConstraints", "pending"},
		},
		{
			resource: schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}, fields: "spec.rollbackTo",
			want: []string{"GROUP:      extensions", "VERSION:    v1beta1", "revision"},
		},
		{
			resource: schema.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "statefulsets"}, fields: "spec",
			want: []string{"VERSION:    v1beta1", "volumeClaimTemplates"},
		},
		{
			resource: schema.GroupVersionResource{Group: "apps", Version: "v1beta2", Resource: "daemonsets"},
			want:     []string{"VERSION:    v1beta2", "KIND:       DaemonSet"},
		},
		{
			resource: schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}, fields: "spec.metrics",
			want: []string{"KIND:       HorizontalPodAutoscaler", "containerResource"},
		},
		{
			resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, fields: "metadata.initializers.pending",
			want: []string{"FIELD: pending", "Name of the initializer that has yet to act."},
		},
	}
	for _, c := range cases {
		t.Run(c.resource.String()+" "+c.fields, func(t *testing.T) {
			var fields []string
			if c.fields != "" {
				fields = strings.Split(c.fields, ".")
			}
			var out strings.Builder
			if err := explain.PrintModelDescription(fields, &out, v3, c.resource, c.recursive, 0, "plaintext"); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestScaleIsDescribedWhereItIsServed(t *testing.T) {
	o, h := documents(t)
	read := readOnce(t, openapi3.NewRoot(client(t, serve(t, h)).OpenAPIV3()))
	for _, e := range o.Endpoints {
		if !strings.HasSuffix(e.Discovery.Name, "/scale") {
			continue
		}
		document := read(e.Scope.Resource.GroupVersion())
		found := false
		for _, s := range document.Components.Schemas {
			kinds, _ := s.Extensions["x-kubernetes-group-version-kind"].([]any)
			found = found || slices.ContainsFunc(kinds, func(kind any) bool {
				return cmp.Equal(kind, any(map[string]any{"group": e.Kind.Group, "version": e.Kind.Version, "kind": e.Kind.Kind}))
			})
		}
		if !found {
			t.Errorf("%s %s: there is no schema of %s", e.Scope.Resource, e.Discovery.Name, e.Kind)
		}
	}
}

// custom documents a group version with a schema named after its revision. The group
// broken.example.com cannot be built.
type custom struct{ revision string }

func (c *custom) OpenAPIV3(gv schema.GroupVersion) (*spec3.OpenAPI, error) {
	if gv.Group == "broken.example.com" {
		return nil, fmt.Errorf("the schema of %s is broken", gv)
	}
	return &spec3.OpenAPI{
		Version: "3.0.0", Info: &spec.Info{},
		Components: &spec3.Components{Schemas: map[string]*spec.Schema{"Widget" + c.revision: spec.StringProperty()}},
	}, nil
}

func (c *custom) OpenAPIV2(static *spec.Swagger) (*spec.Swagger, error) {
	changed := *static
	changed.Definitions = spec.Definitions{"Widget" + c.revision: *spec.StringProperty()}
	return &changed, nil
}

func TestCustomDocuments(t *testing.T) {
	o := builtin(t)
	source := &custom{revision: "1"}
	o.Custom = source
	h := openapi.New(o)
	url := serve(t, h)
	list := func() map[string]string {
		t.Helper()
		_, body := get(t, url+"/openapi/v3")
		var list struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		if err := json.Unmarshal(body, &list); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for name, p := range list.Paths {
			found[name] = p.ServerRelativeURL
		}
		return found
	}
	version := func(group, tag string) openapi.CustomVersion {
		return openapi.CustomVersion{GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}, Tag: tag}
	}
	const name = "apis/example.com/v1"
	if list()[name] != "" {
		t.Fatal("a custom document is listed before there is one")
	}
	before := list()

	h.SetCustom([]openapi.CustomVersion{version("example.com", "a"), version("broken.example.com", "a")})
	first := list()
	if first[name] == "" || first["apis/broken.example.com/v1"] != "" {
		t.Errorf("listed are %v", first)
	}
	for builtin, location := range before {
		if first[builtin] != location {
			t.Errorf("%s moved from %s to %s", builtin, location, first[builtin])
		}
	}
	if res, body := get(t, url+"/openapi/v3/apis/broken.example.com/v1"); res.StatusCode != http.StatusInternalServerError {
		t.Errorf("the broken document: %s: %s", res.Status, body)
	}
	if _, body := get(t, url+first[name]); !strings.Contains(string(body), "Widget1") {
		t.Errorf("the document is %s", body)
	}
	if _, body := get(t, url+"/openapi/v2"); !strings.Contains(string(body), "Widget1") {
		t.Error("OpenAPI v2 lacks the custom kind")
	}

	source.revision = "2"
	h.SetCustom([]openapi.CustomVersion{version("example.com", "a")})
	if again := list(); again[name] != first[name] {
		t.Errorf("an unchanged tag moved the document from %s to %s", first[name], again[name])
	}
	h.SetCustom([]openapi.CustomVersion{version("example.com", "b")})
	second := list()
	if second[name] == first[name] {
		t.Errorf("the changed document is still at %s", second[name])
	}
	res, _ := get(t, url+first[name])
	if res.StatusCode != http.StatusFound || res.Header.Get("Location") != second[name] || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the old location answers %s, %v", res.Status, res.Header)
	}
	if _, body := get(t, url+"/openapi/v2"); !strings.Contains(string(body), "Widget2") {
		t.Error("OpenAPI v2 lacks the changed custom kind")
	}

	// The source has changed, and SetCustom was not called yet.
	source.revision = "3"
	if res, body := get(t, url+second[name]); res.StatusCode == http.StatusOK && !strings.Contains(string(body), "Widget2") {
		t.Errorf("another document is served under the hash of the old one: %s", body)
	}

	h.SetCustom(nil)
	if res, _ := get(t, url+second[name]); res.StatusCode != http.StatusNotFound || list()[name] != "" {
		t.Errorf("the removed document answers %s", res.Status)
	}
}

func TestRequests(t *testing.T) {
	_, h := documents(t)
	url := serve(t, h)
	const (
		proto2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
		proto3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	)
	res, _ := get(t, url+"/openapi/v3/api/v1")
	etag := res.Header.Get("ETag")
	res, _ = get(t, url+"/openapi/v2", "Accept", proto2)
	v2tag := res.Header.Get("ETag")
	cases := []struct {
		name, path, accept, match string
		status                    int
		contentType               string
	}{
		{name: "v3 as JSON", path: "/openapi/v3/apis/apps/v1", accept: "application/json", status: 200, contentType: "application/json"},
		{name: "v3 as anything", path: "/openapi/v3/apis/apps/v1", accept: "*/*", status: 200, contentType: "application/json"},
		{name: "v3 as protobuf", path: "/openapi/v3/apis/apps/v1", accept: proto3, status: 200, contentType: proto3},
		{name: "v3 as protobuf by its old name", path: "/openapi/v3/apis/apps/v1", accept: "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", status: 200, contentType: proto3},
		{name: "v3 as HTML", path: "/openapi/v3/apis/apps/v1", accept: "text/html", status: 406},
		{name: "the client has it", path: "/openapi/v3/api/v1", match: etag, status: 304},
		{name: "the client has another", path: "/openapi/v3/api/v1", match: `"old"`, status: 200, contentType: "application/json"},
		{name: "a group", path: "/openapi/v3/apis/apps", status: 200, contentType: "application/json"},
		{name: "the version", path: "/openapi/v3/version", status: 200, contentType: "application/json"},
		{name: "an unknown group", path: "/openapi/v3/apis/nothing.example.com/v1", status: 404, contentType: "text/plain; charset=utf-8"},
		{name: "an unknown path", path: "/openapi/v4", status: 404, contentType: "text/plain; charset=utf-8"},
		{name: "v2 as JSON", path: "/openapi/v2", status: 200, contentType: "application/json"},
		{name: "v2 as protobuf", path: "/openapi/v2", accept: proto2, status: 200, contentType: proto2},
		{name: "v2 as protobuf by its old name", path: "/openapi/v2", accept: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", status: 200, contentType: proto2},
		{name: "v2 for kubectl 1.8", path: "/swagger-2.0.0.pb-v1", accept: "application/json, */*", status: 200, contentType: "application/octet-stream"},
		{name: "v2 for kubectl 1.8, which has it", path: "/swagger-2.0.0.pb-v1", match: v2tag, status: 304},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			res, body := get(t, url+c.path, "Accept", c.accept, "If-None-Match", c.match)
			if res.StatusCode != c.status || res.Header.Get("Content-Type") != c.contentType {
				t.Errorf("got %s, %q, want %d, %q", res.Status, res.Header.Get("Content-Type"), c.status, c.contentType)
			}
			if c.status == 200 && len(body) == 0 {
				t.Error("the answer is empty")
			}
			if known := c.status != 404; h.Handles(c.path) != known {
				t.Errorf("Handles(%q) = %t", c.path, !known)
			}
		})
	}
	if res, err := http.Post(url+"/openapi/v2", "application/json", nil); err != nil || res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", res, err)
	}
	if _, err := client(t, url).OpenAPISchema(); err != nil {
		t.Errorf("client-go reads OpenAPI v2: %v", err)
	}
}

// S9.8: kubectl 1.8 can read the document. bench/legacy has its own packages read the document.
func TestTheOldDocumentIsReadByKubectl18(t *testing.T) {
	_, h := documents(t)
	res, data := get(t, serve(t, h)+"/swagger-2.0.0.pb-v1")
	if _, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil {
		t.Errorf("client-go cannot parse the media type: %v", err)
	}
	document := &openapi_v2.Document{}
	if err := proto.Unmarshal(data, document); err != nil {
		t.Fatal(err)
	}
	definitions := map[string]bool{}
	for _, d := range document.GetDefinitions().GetAdditionalProperties() {
		definitions["#/definitions/"+d.GetName()] = true
	}
	kinds := 0
	var check func(path string, s *openapi_v2.Schema)
	check = func(path string, s *openapi_v2.Schema) {
		types, properties, ref := s.GetType().GetValue(), s.GetProperties().GetAdditionalProperties(), s.GetXRef()
		switch {
		case ref != "":
			if len(types)+len(properties) > 0 || !definitions[ref] {
				t.Errorf("%s: a reference to %s with %v", path, ref, types)
			}
		case len(properties) > 0:
			kinds++
			if len(types) > 0 {
				t.Errorf("%s: a kind of type %v", path, types)
			}
			for _, p := range properties {
				check(path+"."+p.GetName(), p.GetValue())
			}
		case len(types) != 1:
			t.Errorf("%s: types %v", path, types)
		case types[0] == "object":
			if s.GetAdditionalProperties().GetSchema() == nil {
				t.Errorf("%s: a map of unknown values", path)
				return
			}
			check(path+"[]", s.GetAdditionalProperties().GetSchema())
		case types[0] == "array":
			if len(s.GetItems().GetSchema()) != 1 {
				t.Errorf("%s: a list of %d kinds of items", path, len(s.GetItems().GetSchema()))
				return
			}
			check(path+"[]", s.GetItems().GetSchema()[0])
		}
	}
	for _, d := range document.GetDefinitions().GetAdditionalProperties() {
		check(d.GetName(), d.GetValue())
	}
	if kinds < 500 || !definitions["#/definitions/io.k8s.api.apps.v1.Deployment"] {
		t.Errorf("%d kinds", kinds)
	}
}

func TestADocumentIsTheSameEachTimeItIsBuilt(t *testing.T) {
	o := builtin(t)
	one, other := serve(t, openapi.New(o)), serve(t, openapi.New(o))
	for _, path := range []string{"/openapi/v3", "/openapi/v2"} {
		_, a := get(t, one+path)
		_, b := get(t, other+path)
		if diff := cmp.Diff(string(a), string(b)); diff != "" {
			t.Errorf("%s differs:\n%.2000s", path, diff)
		}
	}
}
