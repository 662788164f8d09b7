package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// interception answers a request instead of the server, or forwards it.
type interception func(next http.RoundTripper, req *http.Request) (*http.Response, error)

// faulty is a separate garbage collector in the test process, whose requests can be intercepted. The server
// runs no controllers.
type faulty struct {
	*controllers.Controllers
	fault atomic.Pointer[interception]

	mu sync.Mutex
	// held contains the paths whose watches deliver no events until their channel is closed. The watches of
	// paths in cut end in the middle of their next event.
	held map[string]chan struct{}
	cut  map[string]bool
}

func startFaulty(t *testing.T, s *harness.Server, first interception) *faulty {
	t.Helper()
	f := &faulty{held: map[string]chan struct{}{}, cut: map[string]bool{}}
	f.set(first)
	config := rest.CopyConfig(s.Admin)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return faultyTransport{f, next} })
	shared := informers.NewSharedInformerFactory(harness.Client(t, s.Admin), 0)
	var err error
	f.Controllers, err = controllers.New(controllers.Options{
		Selection: []string{"garbage-collector"}, Loopback: config, Informers: shared,
		Prefix: func(schema.GroupResource) string { return "" },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	shared.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		shared.Shutdown()
	})
	return f
}

// set sets the interception of requests; nil removes it.
func (f *faulty) set(now interception) { f.fault.Store(&now) }

// hold delays the events of watches of a path, from the next event on, until release is called.
func (f *faulty) hold(path string) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gate := make(chan struct{})
	f.held[path] = gate
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.held, path)
		close(gate)
	})
}

// cutAt ends the watches of a path in the middle of their next event.
func (f *faulty) cutAt(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut[path] = true
}

type faultyTransport struct {
	*faulty
	next http.RoundTripper
}

func (f faultyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	do := f.next.RoundTrip
	if now := *f.fault.Load(); now != nil {
		do = func(req *http.Request) (*http.Response, error) { return now(f.next, req) }
	}
	res, err := do(req)
	if err == nil && req.URL.Query().Get("watch") != "" {
		res.Body = &events{ReadCloser: res.Body, faulty: f.faulty, path: req.URL.Path}
	}
	return res, err
}

// events is the response body of a watch.
type events struct {
	io.ReadCloser
	*faulty
	path string
	over bool
}

func (e *events) Read(p []byte) (int, error) {
	if e.over {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := e.ReadCloser.Read(p)
	e.mu.Lock()
	gate, cut := e.held[e.path], e.cut[e.path] && n > 1
	if cut {
		delete(e.cut, e.path)
	}
	e.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if cut {
		e.over = true
		return n / 2, nil
	}
	return n, err
}

func refused(req *http.Request, code int) *http.Response {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Header: http.Header{"Content-Type": {"text/plain"}}, Request: req,
		Body: io.NopCloser(strings.NewReader("a fault")),
	}
}

func secretOwner(name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: name, UID: uid}}
}

func (o *owners) secret(name string) *corev1.Secret {
	o.Helper()
	made, err := o.client.CoreV1().Secrets(o.ns).Create(harness.Context(o), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		o.Fatal(err)
	}
	return made
}

func (o *owners) deleteSecret(name string) {
	o.Helper()
	if err := o.client.CoreV1().Secrets(o.ns).Delete(harness.Context(o), name, metav1.DeleteOptions{}); err != nil {
		o.Fatal(err)
	}
}

// missing is a reference to an owner that never existed.
var missing = metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "nobody", UID: "11111111-2222-3333-4444-777777777777"}

// suspect adds a missing owner to a ConfigMap, so that the collector checks all its owners.
func (o *owners) suspect(name string) {
	o.Helper()
	ref := missing
	ref.UID += types.UID(name)
	found := o.get(name)
	if found == nil {
		o.Fatalf("%s is gone", name)
	}
	o.own(name, append(found.OwnerReferences, ref))
}

// own sets the owners of a ConfigMap.
func (o *owners) own(name string, refs []metav1.OwnerReference) {
	o.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": refs}})
	if err != nil {
		o.Fatal(err)
	}
	if _, err := o.client.CoreV1().ConfigMaps(o.ns).Patch(harness.Context(o), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		o.Fatal(err)
	}
}

// cleared waits until the only remaining owner of a suspected ConfigMap is the existing one.
func (o *owners) cleared(name string, owner types.UID) {
	o.Helper()
	harness.Eventually(o, name+" has one owner", func() error {
		c := o.get(name)
		if c == nil {
			o.Fatalf("%s is gone, and its owner is there", name)
		}
		if len(c.OwnerReferences) != 1 || c.OwnerReferences[0].UID != owner {
			return fmt.Errorf("%v", c.OwnerReferences)
		}
		return nil
	})
}

// isDiscovery reports whether a request is a discovery request.
func isDiscovery(req *http.Request) bool {
	return req.URL.Path == "/api" || req.URL.Path == "/apis" || req.URL.Path == "/api/v1" ||
		strings.HasPrefix(req.URL.Path, "/apis/") && strings.Count(req.URL.Path, "/") == 3
}

// remembered returns a function that answers discovery with the current responses of the server.
func remembered(o *owners, s *harness.Server) func(*http.Request) *http.Response {
	o.Helper()
	type answer struct {
		header http.Header
		body   []byte
	}
	var mu sync.Mutex
	answers := map[string]answer{}
	config := rest.CopyConfig(s.Admin)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(req)
			if err != nil || res.StatusCode != http.StatusOK {
				return res, err
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				return nil, err
			}
			res.Body = io.NopCloser(bytes.NewReader(body))
			mu.Lock()
			defer mu.Unlock()
			answers[req.URL.Path] = answer{res.Header, body}
			return res, nil
		})
	})
	if _, _, err := harness.Client(o.T, config).Discovery().ServerGroupsAndResources(); err != nil {
		o.Fatal(err)
	}
	return func(req *http.Request) *http.Response {
		mu.Lock()
		defer mu.Unlock()
		known, ok := answers[req.URL.Path]
		if !ok {
			return refused(req, http.StatusServiceUnavailable)
		}
		return &http.Response{
			StatusCode: http.StatusOK, Status: "200 OK", Header: known.header, Request: req,
			Body: io.NopCloser(bytes.NewReader(known.body)),
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// Whatever the collector cannot see, no object with a live owner is deleted. When it can see everything
// again, garbage is collected.
func TestGarbageCollectionWithFaults(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--controllers", "-*")
	var asked atomic.Int32
	noDiscovery := func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if isDiscovery(req) {
			asked.Add(1)
			return refused(req, http.StatusServiceUnavailable), nil
		}
		return next.RoundTrip(req)
	}
	f := startFaulty(t, s, noDiscovery)
	chosen := speed.Some(t, 3, []string{
		"discovery fails from the start", "discovery fails later", "slow watches of dependents", "slow watches of owners",
		"watches that end in the middle of an event, and begin anew", "a custom kind is removed and made again",
		"the version of an owner is not served for a while", "S11.36 an owner is not initialized",
	})
	if slices.Contains(chosen, "the version of an owner is not served for a while") {
		// That test makes the kind.
		chosen = append(chosen, "a custom kind is removed and made again")
	}
	run := func(name string, test func(*owners)) {
		if !slices.Contains(chosen, name) {
			return
		}
		t.Run(name, func(t *testing.T) {
			f.set(nil)
			f.KindsChanged()
			test(newOwners(t, s))
		})
	}

	for _, name := range []string{"discovery fails from the start", "discovery fails later"} {
		run(name, func(o *owners) {
			f.set(noDiscovery)
			asked.Store(0)
			f.KindsChanged()
			harness.Eventually(o, "discovery is tried", func() error {
				if asked.Load() == 0 {
					return errors.New("nobody asked")
				}
				return nil
			})
			owner := o.make("owner", nil)
			o.make("kept", append(ownedBy(owner), missing))
			o.make("left", []metav1.OwnerReference{missing})
			f.set(nil)
			f.KindsChanged()
			o.gone("left")
			o.cleared("kept", owner.UID)
		})
	}

	// One dependent gets another owner, and the first owner is created again, with a new dependent.
	change := func(o *owners) {
		first := o.get("moved").OwnerReferences[0]
		other := o.secret("other")
		o.own("moved", secretOwner("other", other.UID))
		o.deleteSecret(first.Name)
		second := o.secret(first.Name)
		o.make("new", secretOwner(first.Name, second.UID))
	}
	prepare := func(o *owners) {
		first := o.secret("owner")
		o.make("moved", secretOwner("owner", first.UID))
		o.make("left", secretOwner("owner", first.UID))
		o.collected()
	}
	check := func(o *owners) {
		o.gone("left")
		o.there("moved", "new")
		for _, name := range []string{"moved", "new"} {
			owner := o.get(name).OwnerReferences[0].UID
			o.suspect(name)
			o.cleared(name, owner)
		}
	}
	run("slow watches of dependents", func(o *owners) {
		prepare(o)
		release := f.hold("/api/v1/configmaps")
		defer release()
		change(o)
		// The collector observes the deletion of the owner, but not its dependents.
		o.gone("left")
		release()
		check(o)
	})
	run("slow watches of owners", func(o *owners) {
		prepare(o)
		release := f.hold("/api/v1/secrets")
		defer release()
		change(o)
		// The collector observes dependents, but not their owners.
		o.suspect("new")
		o.cleared("new", o.get("new").OwnerReferences[0].UID)
		release()
		check(o)
	})
	run("watches that end in the middle of an event, and begin anew", func(o *owners) {
		prepare(o)
		var mu sync.Mutex
		refusals := map[string]int{"/api/v1/secrets": 2, "/api/v1/configmaps": 2}
		for path := range refusals {
			f.cutAt(path)
		}
		f.set(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			mu.Lock()
			left := refusals[req.URL.Path]
			if left > 0 {
				refusals[req.URL.Path]--
			}
			mu.Unlock()
			switch {
			case left == 0:
				return next.RoundTrip(req)
			case left == 2:
				return refused(req, http.StatusGone), nil
			}
			return refused(req, http.StatusServiceUnavailable), nil
		})
		change(o)
		check(o)
		mu.Lock()
		defer mu.Unlock()
		if refusals["/api/v1/secrets"]+refusals["/api/v1/configmaps"] > 0 {
			o.Errorf("no watch began anew: %v", refusals)
		}
	})

	dynamic := harness.Dynamic(t, s.Admin)
	definitions := dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	define := func(o *owners) {
		o.Helper()
		definition := &unstructured.Unstructured{}
		if err := definition.UnmarshalJSON([]byte(toJSON(strings.ReplaceAll(gadgetsInTwoVersions, "\t", " ")))); err != nil {
			o.Fatal(err)
		}
		harness.Eventually(o, "the definition is made", func() error {
			_, err := definitions.Create(harness.Context(o), definition, metav1.CreateOptions{})
			return err
		})
	}
	gadget := func(o *owners, name string) []metav1.OwnerReference {
		o.Helper()
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gc.example.com/v1", "kind": "Gadget"}}
		object.SetName(name)
		var made *unstructured.Unstructured
		harness.Eventually(o, "the kind is served", func() (err error) {
			made, err = dynamic.Resource(gadgetsV1).Namespace(o.ns).Create(harness.Context(o), object, metav1.CreateOptions{})
			return err
		})
		return []metav1.OwnerReference{{APIVersion: "gc.example.com/v1", Kind: "Gadget", Name: name, UID: made.GetUID()}}
	}
	run("a custom kind is removed and made again", func(o *owners) {
		define(o)
		first := gadget(o, "owner")
		f.KindsChanged()
		o.make("before", first)
		o.suspect("before")
		o.cleared("before", first[0].UID)
		// The collector does not observe the deletion, and continues with its cached discovery of the kind.
		if err := definitions.Delete(harness.Context(o), "gadgets.gc.example.com", metav1.DeleteOptions{}); err != nil {
			o.Fatal(err)
		}
		define(o)
		second := gadget(o, "owner")
		o.make("after", second)
		o.make("late", first)
		o.suspect("after")
		o.cleared("after", second[0].UID)
		o.gone("before", "late")
		o.there("after")
	})
	run("the version of an owner is not served for a while", func(o *owners) {
		refs := gadget(o, "owner")
		f.KindsChanged()
		o.make("kept", refs)
		o.suspect("kept")
		o.cleared("kept", refs[0].UID)
		// The collector continues to discover the unserved version.
		var absent atomic.Int32
		found := remembered(o, s)
		f.set(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			if isDiscovery(req) {
				return found(req), nil
			}
			res, err := next.RoundTrip(req)
			if err == nil && res.StatusCode == http.StatusNotFound && strings.HasSuffix(req.URL.Path, "/gadgets/owner") {
				absent.Add(1)
			}
			return res, err
		})
		serve := func(served bool) {
			patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/versions/0/served","value":%t}]`, served)
			if _, err := definitions.Patch(harness.Context(o), "gadgets.gc.example.com", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				o.Fatal(err)
			}
			harness.Eventually(o, fmt.Sprintf("served: %t", served), func() error {
				_, err := dynamic.Resource(gadgetsV1).Namespace(o.ns).Get(harness.Context(o), "owner", metav1.GetOptions{})
				if (err == nil) != served {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
		}
		serve(false)
		o.suspect("kept")
		harness.Eventually(o, "the collector asks for the owner, and again", func() error {
			if n := absent.Load(); n < 2 && o.get("kept") != nil {
				return fmt.Errorf("%d times", n)
			}
			return nil
		})
		if o.get("kept") == nil {
			o.Fatal("the dependent is gone, and its owner is there")
		}
		serve(true)
		o.cleared("kept", refs[0].UID)
	})

	run("S11.36 an owner is not initialized", func(o *owners) {
		made := s.HTTP(o.T, nil).Must(http.StatusAccepted, "POST", "/api/v1/namespaces/"+o.ns+"/secrets?includeUninitialized=true",
			`{"metadata": {"name": "owner", "initializers": {"pending": [{"name": "slow.example.com"}]}}}`)
		uid := types.UID(made.Text("metadata", "uid"))
		o.make("kept", secretOwner("owner", uid))
		o.suspect("kept")
		o.cleared("kept", uid)
		o.deleteSecret("owner")
		o.gone("kept")
	})
}

var gadgetsV1 = schema.GroupVersionResource{Group: "gc.example.com", Version: "v1", Resource: "gadgets"}

const gadgetsInTwoVersions = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gadgets.gc.example.com}, spec: {
	group: gc.example.com, scope: Namespaced, names: {kind: Gadget, plural: gadgets, singular: gadget}, versions: [
	{name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}},
	{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`
