package customresources

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage"
	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// store is the etcd of all tests. Each has a prefix of its own.
var store *etcdkubernetes.Client

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	registerUpstream()
	os.Exit(etcdtest.Main(m, &store))
}

// registerUpstream makes upstream register its metrics first: otherwise upstream's registration
// would fail.
func registerUpstream() {
	url := "https://localhost"
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url},
		},
	}
	factory, err := conversion.NewCRConverterFactory(nil, nil)
	if err == nil {
		_, _, err = factory.NewConverter(crd)
	}
	if err != nil {
		panic(err)
	}
}

// env is a running server.
type env struct {
	*Server
	t      testing.TB
	ctx    context.Context
	url    string
	prefix string
	// admit, if set before a request, is its admission.
	admit gatekeeper

	mu struct {
		sync.Mutex
		// changed is closed and replaced whenever the served CRDs change.
		changed chan struct{}
	}
}

// gatekeeper is an admission plugin that tests can change.
type gatekeeper struct {
	sync.Mutex
	validate func(admission.Attributes) error
	// mutate, if set, is called before validate.
	mutate func(admission.Attributes)
	// convert, if set, is called in place of validate.
	convert func(runtime.ObjectConvertor, runtime.Object) error
}

func (*gatekeeper) Handles(admission.Operation) bool { return true }

func (g *gatekeeper) Validate(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	g.Lock()
	validate, convert := g.validate, g.convert
	g.Unlock()
	if convert != nil {
		return convert(o.GetObjectConvertor(), a.GetObject())
	}
	if validate == nil {
		return nil
	}
	return validate(a)
}

func (g *gatekeeper) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	g.Lock()
	mutate := g.mutate
	g.Unlock()
	if mutate != nil {
		mutate(a)
	}
	return nil
}

func (g *gatekeeper) set(validate func(admission.Attributes) error) {
	g.Lock()
	defer g.Unlock()
	g.validate = validate
}

// envs counts the servers so far, for prefixes that no two tests share.
var envs atomic.Int64

func newEnv(t testing.TB, options ...func(*Options)) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	e := &env{t: t, ctx: ctx, prefix: fmt.Sprintf("/%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), envs.Add(1))}
	e.mu.changed = make(chan struct{})

	handler := &resources.Handler{Admission: &e.admit, NotFound: http.NotFoundHandler()}
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	withUser := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := "tester"
		if strings.HasPrefix(req.URL.Path, definitionsPath) && strings.HasSuffix(req.URL.Path, "/status") {
			// Controllers of the server write the status.
			name = user.APIServerUser
		}
		handler.ServeHTTP(w, req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: name})))
	})
	web := httptest.NewServer(filters.WithAuditInit(filters.WithRequestReceivedTimestamp(filters.WithWarningRecorder(filters.WithRequestInfo(withUser, resolver)))))
	e.url = web.URL

	factory := storage.NewFactory(nil, store, nil)
	o := Options{
		Factory:             factory,
		Storage:             *storagebackend.NewDefaultConfig(e.prefix, nil),
		Client:              &rest.Config{Host: web.URL, QPS: -1},
		Equivalents:         runtime.NewEquivalentResourceRegistry(),
		MaxRequestBodyBytes: 3 << 20,
		Webhooks:            newCaller(t, call.Options{}),
		OnChange: func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			close(e.mu.changed)
			e.mu.changed = make(chan struct{})
		},
	}
	for _, option := range options {
		option(&o)
	}
	e.prefix = o.Storage.Prefix
	var err error
	if e.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	endpoints, err := e.DefinitionEndpoints()
	if err != nil {
		t.Fatal(err)
	}
	static := resources.Static{}
	static.Add(endpoints)
	handler.Sources = []resources.Source{static, e.Server}

	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		web.CloseClientConnections()
		web.Close()
		factory.Close()
	})
	if err := e.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return e
}

// response is an answer of the server.
type response struct {
	code   int
	header http.Header
	raw    []byte
	body   map[string]any
}

// at returns the value at a path of names, nil if there is none.
func (r *response) at(path ...string) any { return at(r.body, path...) }

func at(v any, path ...string) any {
	for _, name := range path {
		switch t := v.(type) {
		case map[string]any:
			v = t[name]
		case []any:
			var i int
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(t) {
				return nil
			}
			v = t[i]
		default:
			return nil
		}
	}
	return v
}

// do sends a request. Headers are pairs of name and value.
func (e *env) do(method, path, body string, headers ...string) *response {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.ctx, method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer res.Body.Close()
	r := &response{code: res.StatusCode, header: res.Header}
	if r.raw, err = io.ReadAll(res.Body); err != nil {
		e.t.Fatal(err)
	}
	switch {
	case strings.Contains(res.Header.Get("Content-Type"), "json"):
		err = json.Unmarshal(r.raw, &r.body)
	case strings.Contains(res.Header.Get("Content-Type"), "yaml"):
		err = yaml.Unmarshal(r.raw, &r.body)
	}
	if err != nil {
		e.t.Fatalf("%s %s: %v in %s", method, path, err, r.raw)
	}
	return r
}

// must is do, and fails the test on another code.
func (e *env) must(code int, method, path, body string, headers ...string) *response {
	e.t.Helper()
	r := e.do(method, path, body, headers...)
	if r.code != code {
		e.t.Fatalf("%s %s: %d, want %d: %s", method, path, r.code, code, r.raw)
	}
	return r
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// define creates a CRD from YAML and waits until it is established.
func (e *env) define(text string) *apiextensionsv1.CustomResourceDefinition {
	e.t.Helper()
	crd := e.create(text)
	return e.until(crd.Name, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	})
}

func (e *env) create(text string) *apiextensionsv1.CustomResourceDefinition {
	e.t.Helper()
	r := e.must(http.StatusCreated, "POST", definitionsPath, text, "Content-Type", "application/yaml")
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(r.raw, crd); err != nil {
		e.t.Fatal(err)
	}
	return crd
}

// until watches a CRD until wanted reports true; wanted gets nil when the CRD is deleted.
func (e *env) until(name string, wanted func(*apiextensionsv1.CustomResourceDefinition) bool) *apiextensionsv1.CustomResourceDefinition {
	e.t.Helper()
	w, err := e.client.ApiextensionsV1().CustomResourceDefinitions().Watch(e.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		e.t.Fatal(err)
	}
	defer w.Stop()
	if wanted == nil {
		// The watch does not report a deletion from before it began.
		_, err := e.client.ApiextensionsV1().CustomResourceDefinitions().Get(e.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
	for event := range w.ResultChan() {
		crd, _ := event.Object.(*apiextensionsv1.CustomResourceDefinition)
		if crd == nil {
			e.t.Fatalf("watching %s: %v", name, event.Object)
		}
		if event.Type == "DELETED" {
			if wanted == nil {
				return nil
			}
			e.t.Fatalf("%s is gone", name)
		}
		if wanted != nil && wanted(crd) {
			return crd
		}
	}
	e.t.Fatalf("%s did not come to be as wanted", name)
	return nil
}

// await waits until wanted reports true. It looks again whenever the served CRDs change.
func (e *env) await(wanted func() bool) {
	e.t.Helper()
	for {
		e.mu.Lock()
		changed := e.mu.changed
		e.mu.Unlock()
		if wanted() {
			return
		}
		select {
		case <-changed:
		case <-e.ctx.Done():
			e.t.Fatal("what is served did not come to be as wanted")
		}
	}
}

// update changes the spec of a CRD and waits until the changed CRD is served.
func (e *env) update(name string, change func(*apiextensionsv1.CustomResourceDefinitionSpec)) {
	e.t.Helper()
	crds := e.client.ApiextensionsV1().CustomResourceDefinitions()
	crd, err := crds.Get(e.ctx, name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	change(&crd.Spec)
	if crd, err = crds.Update(e.ctx, crd, metav1.UpdateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	e.await(func() bool {
		served, ok := (*e.snapshot.Load())[keyOf(crd)]
		return ok && served.definition.crd.Generation >= crd.Generation
	})
}

// keys lists the keys in etcd under a prefix.
func (e *env) keys(prefix string) []string {
	e.t.Helper()
	res, err := store.KV.Get(e.ctx, e.prefix+prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		e.t.Fatal(err)
	}
	var keys []string
	for _, kv := range res.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// stream is a watch as a client sees it.
type stream struct {
	decoder *json.Decoder
	body    io.Closer
}

func (e *env) watch(path string) *stream {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.ctx, "GET", e.url+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		e.t.Fatalf("watch of %s: %s", path, res.Status)
	}
	e.t.Cleanup(func() { res.Body.Close() })
	return &stream{json.NewDecoder(res.Body), res.Body}
}

// next returns the next event; the error is io.EOF when the server ended the
// watch in order.
func (s *stream) next() (event struct {
	Type   string
	Object map[string]any
}, err error) {
	err = s.decoder.Decode(&event)
	return event, err
}

func (s *stream) close() { s.body.Close() }

func object(lines ...string) string {
	data, err := yaml.YAMLToJSON([]byte(strings.Join(lines, "\n")))
	if err != nil {
		panic(err)
	}
	return string(bytes.TrimSpace(data))
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
