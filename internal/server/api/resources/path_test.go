package resources

import (
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// connecting is the storage of a subresource such as pods/proxy.
type connecting struct {
	rest.Storage
	rest.Connecter
	more bool
}

func (c connecting) NewConnectOptions() (runtime.Object, bool, string) { return nil, c.more, "" }

// listing is the storage of a resource such as pods.
type listing struct {
	rest.Storage
	rest.Lister
}

func (listing) New() runtime.Object { return nil }
func (listing) Destroy()            {}

func TestPathsAreExact(t *testing.T) {
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	namespaced := &Endpoint{Discovery: metav1.APIResource{Namespaced: true}, Storage: listing{}}
	custom := &Endpoint{Discovery: metav1.APIResource{Namespaced: true}, Storage: listing{}, Custom: true}
	unlisted := &Endpoint{Discovery: metav1.APIResource{Namespaced: true}}
	cluster := &Endpoint{}
	exec := &Endpoint{Discovery: metav1.APIResource{Namespaced: true}, Storage: connecting{}}
	proxy := &Endpoint{Discovery: metav1.APIResource{Namespaced: true}, Storage: connecting{more: true}}
	for _, c := range []struct {
		// path is the path of the request, after a method if that is not GET.
		path string
		at   *Endpoint
		want bool
	}{
		// Without a namespace, a path can only list the objects of all namespaces.
		{"/api/v1/pods/b", namespaced, false},
		{"PUT /api/v1/pods/b", namespaced, false},
		{"DELETE /api/v1/pods/b", namespaced, false},
		{"/api/v1/pods/b/status", namespaced, false},
		{"/api/v1/watch/pods/b", namespaced, false},
		{"POST /api/v1/pods/b/exec", exec, false},
		{"POST /api/v1/bindings", unlisted, false},
		{"POST /api/v1/namespaces/a/bindings", unlisted, true},
		// The path exists, but the method is not allowed.
		{"POST /api/v1/pods", namespaced, true},
		{"DELETE /api/v1/pods", namespaced, true},
		{"/apis/example.com/v1/widgets", custom, true},
		{"/apis/example.com/v1/widgets?watch=1", custom, true},
		{"POST /apis/example.com/v1/widgets", custom, false},
		{"DELETE /apis/example.com/v1/widgets", custom, false},
		{"/apis/example.com/v1/widgets/b", custom, false},
		{"POST /apis/example.com/v1/namespaces/a/widgets", custom, true},

		{"/api/v1/pods", namespaced, true},
		{"/api/v1/pods/", namespaced, true},
		{"/api/v1/pods?fieldSelector=metadata.name%3Da", namespaced, true},
		{"/api/v1/namespaces/a/pods", namespaced, true},
		{"/api/v1/namespaces/a/pods/b", namespaced, true},
		{"/api/v1/namespaces/a/pods/b/status", namespaced, true},
		{"/api/v1/namespaces/a/pods/b/status/", namespaced, true},
		{"/api/v1/namespaces/a/pods/b/status/c", namespaced, false},
		{"/api/v1/watch/pods", namespaced, true},
		{"/api/v1/watch/namespaces/a/pods", namespaced, true},
		{"/api/v1/watch/namespaces/a/pods/b", namespaced, true},
		{"/api/v1/proxy/namespaces/a/pods/b", namespaced, false},
		{"/api/v1/namespaces//pods", namespaced, false},
		{"/api/v1/namespaces/a//pods", namespaced, false},
		{"/api/v1/namespaces/a/pods//status", namespaced, false},
		{"/api/v1//pods", namespaced, false},
		{"/apis/apps/v1/namespaces/a/deployments", namespaced, true},
		{"/apis//v1/namespaces/a/pods", namespaced, false},

		{"/api/v1/namespaces", cluster, true},
		{"/api/v1/namespaces/a", cluster, true},
		{"/api/v1/namespaces/a/status", cluster, true},
		{"/api/v1/namespaces/a/finalize", cluster, true},
		{"/api/v1/watch/namespaces", cluster, true},
		{"/api/v1/watch/namespaces/a", cluster, true},
		{"/api/v1/nodes/a", cluster, true},
		// A user with all rights in namespace a may do nothing to b.
		{"/api/v1/namespaces/a/namespaces", cluster, false},
		{"/api/v1/namespaces/a/namespaces/b", cluster, false},
		{"/api/v1/namespaces/a/namespaces/b/status", cluster, false},
		{"/api/v1/namespaces/a/namespaces/a", cluster, false},
		{"/api/v1/watch/namespaces/a/namespaces/b", cluster, false},
		{"/api/v1/namespaces/a/nodes", cluster, false},
		{"/api/v1/namespaces/a/nodes/b", cluster, false},

		{"/api/v1/namespaces/a/pods/b/exec", exec, true},
		{"/api/v1/namespaces/a/pods/b/exec/c", exec, false},
		{"/api/v1/namespaces/a/pods/b/proxy/c//d", proxy, true},
		// The verb that was authorized would be watch.
		{"/api/v1/watch/namespaces/a/pods/b/exec", exec, false},
	} {
		t.Run(c.path, func(t *testing.T) {
			method, path, given := strings.Cut(c.path, " ")
			if !given {
				method, path = "GET", c.path
			}
			info, err := resolver.NewRequestInfo(httptest.NewRequest(method, path, nil))
			if err != nil {
				t.Fatal(err)
			}
			if !info.IsResourceRequest {
				if c.want {
					t.Fatal("not a resource request")
				}
				return
			}
			if got := c.at.at(info); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestTransforms(t *testing.T) {
	for _, c := range []struct {
		accept string
		want   bool
	}{
		{"application/json", false},
		{"*/*", false},
		{"application/json;charset=utf-8", false},
		{"application/json;as=Table;v=v1;g=meta.k8s.io, application/json", true},
		{"application/json, application/json;g=meta.k8s.io;v=v1;as \t= PartialObjectMetadata", true},
		{"application/vnd.basic+json, application/json;as =Table", true},
	} {
		req := httptest.NewRequest("GET", "/", nil)
		req.Header.Set("Accept", c.accept)
		if got := transforms(req); got != c.want {
			t.Errorf("%q: got %v, want %v", c.accept, got, c.want)
		}
	}
}
