package initialization

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// through sends a request through the handler of an embedding server. Its API calls do, and responds with
// the code success unless do returns an error.
func (e *env) through(h *embedded, info request.RequestInfo, query string, success int, do func(context.Context) error) (code int, err error) {
	h.do = func(w http.ResponseWriter, req *http.Request) {
		if err = do(req.Context()); err == nil {
			w.WriteHeader(success)
		}
	}
	info.IsResourceRequest, info.Resource = true, "configmaps"
	req := httptest.NewRequestWithContext(request.WithRequestInfo(e.ctx, &info), http.MethodPost, "/"+query, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code, err
}

// embedded is the handler and the API of a server of its own.
type embedded struct {
	http.Handler
	do http.HandlerFunc
}

func (e *env) embed(creators int) *embedded {
	h := &embedded{}
	h.Handler = e.d.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { h.do(w, req) }), nil, creators)
	return h
}

func TestHandlerOfOtherServers(t *testing.T) {
	e := newEnv(t)
	create := request.RequestInfo{Verb: "create"}
	creates := func(name string, out *corev1.ConfigMap) func(context.Context) error {
		return func(ctx context.Context) error {
			return e.store.Create(ctx, keyOf(name), object(name, "a.example.com"), out, 0)
		}
	}
	code, err := e.through(e.embed(1), create, "?includeUninitialized=1", http.StatusCreated, creates("o", &corev1.ConfigMap{}))
	if err != nil || code != http.StatusAccepted {
		t.Errorf("S11.27: %d, %v", code, err)
	}

	full := e.embed(0)
	_, err = e.through(full, create, "", http.StatusCreated, creates("full", &corev1.ConfigMap{}))
	refused(t, err, http.StatusGatewayTimeout, `is stored and waits for initializer "a.example.com"`)
	if got := e.pending("full"); got != "a" {
		t.Errorf("a create beyond the places left the object %s", got)
	}

	type answer struct {
		code int
		err  error
	}
	out, done := &corev1.ConfigMap{}, make(chan answer, 1)
	go func() {
		code, err := e.through(e.embed(1), create, "", http.StatusCreated, creates("p", out))
		done <- answer{code, err}
	}()
	e.await("the creator waits", func() bool { return e.pending("p") == "a" })
	e.write(e.store, "p", func(c *corev1.ConfigMap) {
		c.Data = map[string]string{"x": "y"}
		initializers.Set(c, nil)
	})
	if a := <-done; a.err != nil || a.code != http.StatusCreated || out.Data["x"] != "y" || initializers.Has(out) {
		t.Errorf("S11.25: %+v, %v", a, out)
	}

	status := request.RequestInfo{Verb: "update", Subresource: "status"}
	_, err = e.through(e.embed(1), status, "", http.StatusOK, func(ctx context.Context) error {
		return e.store.GuaranteedUpdate(ctx, keyOf("o"), &corev1.ConfigMap{}, false, nil, apistorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			initializers.Set(obj, nil)
			return obj, nil
		}), nil)
	})
	if got := e.pending("o"); err != nil || got != "a" {
		t.Errorf("S11.41: %v, the object is %s", err, got)
	}

	get := request.RequestInfo{Verb: "get", Name: "o"}
	reads := func(ctx context.Context) error {
		return e.store.Get(ctx, keyOf("o"), apistorage.GetOptions{}, &corev1.ConfigMap{})
	}
	if _, err = e.through(e.embed(1), get, "", http.StatusOK, reads); !apistorage.IsNotFound(err) {
		t.Errorf("S11.33: %v", err)
	}
	if _, err = e.through(e.embed(1), get, "?includeUninitialized", http.StatusOK, reads); err != nil {
		t.Errorf("S11.33: %v", err)
	}
}
