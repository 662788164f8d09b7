package resources

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// reading is the storage of objects that can be read.
type reading struct{ listing }

func (reading) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	return nil, nil
}

// proxying is the storage of a subresource that passes HEAD on.
type proxying struct{ connecting }

func (proxying) ConnectMethods() []string { return []string{http.MethodGet, http.MethodHead} }
func (proxying) Connect(context.Context, string, runtime.Object, rest.Responder) (http.Handler, error) {
	return nil, nil
}

// HEAD is not allowed where GET is, as at kube-apiserver, except for custom resources, and for
// connections that name it.
func TestHead(t *testing.T) {
	objects := &Endpoint{Storage: reading{}, Scope: &handlers.RequestScope{}}
	custom := &Endpoint{Storage: reading{}, Scope: &handlers.RequestScope{}, Custom: true}
	proxy := &Endpoint{Storage: proxying{}, Scope: &handlers.RequestScope{}}
	for _, c := range []struct {
		name          string
		at            *Endpoint
		method, verb  string
		object        string
		allowed       bool
		verbInMessage string
	}{
		{"GET of a list", objects, http.MethodGet, "list", "", true, "list"},
		{"HEAD of a list", objects, http.MethodHead, "list", "", false, "head"},
		{"GET of an object", objects, http.MethodGet, "get", "a", true, "get"},
		{"HEAD of an object", objects, http.MethodHead, "get", "a", false, "head"},
		{"HEAD of a list of custom resources", custom, http.MethodHead, "list", "", true, "head"},
		{"HEAD of a custom resource", custom, http.MethodHead, "get", "a", true, "head"},
		{"HEAD through a proxy", proxy, http.MethodHead, "get", "a", true, "head"},
	} {
		t.Run(c.name, func(t *testing.T) {
			info := &request.RequestInfo{Verb: c.verb, Name: c.object}
			req := httptest.NewRequestWithContext(t.Context(), c.method, "/", nil)
			if allowed := (&call{Endpoint: c.at, info: info, req: req}).handler() != nil; allowed != c.allowed {
				t.Errorf("allowed: %v, want %v", allowed, c.allowed)
			}
			if got := verbName(info, req); got != c.verbInMessage {
				t.Errorf("an error names the verb %q, want %q", got, c.verbInMessage)
			}
		})
	}
}
