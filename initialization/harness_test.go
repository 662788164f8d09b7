package initialization

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage"
	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// database is the etcd of all tests. Each test has a prefix of its own.
var database *etcdkubernetes.Client

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(etcdtest.Main(m, &database))
}

// patience limits every wait of a test.
const patience = 20 * time.Second

// env is a store of config maps, behind a decorator and a watch cache, and the
// same store without the decorator, as another server's writes are.
type env struct {
	t      testing.TB
	ctx    context.Context
	d      *Decorator
	clock  *clocktesting.FakeClock
	store  apistorage.Interface
	raw    *rawStore
	prefix string
	events chan Event
	// end ends the server.
	end func()
}

// rawStore is the store behind the decorator. Its hooks make faults.
type rawStore struct {
	apistorage.Interface
	// created is called between the storing of an object and Create's return.
	created func(key string)
	// updating may fail an update before it happens.
	updating func() error
	// write, when set, surrounds every write.
	write func(func() error) error
	// watches are the open watches, with the function that ends each.
	mu      sync.Mutex
	watches map[context.Context]func()
}

func (r *rawStore) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	err := r.writing(func() error { return r.Interface.Create(ctx, key, obj, out, ttl) })
	if err == nil && r.created != nil {
		r.created(key)
	}
	return err
}

func (r *rawStore) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, cached runtime.Object,
) error {
	if r.updating != nil {
		if err := r.updating(); err != nil {
			return err
		}
	}
	return r.writing(func() error {
		return r.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	})
}

func (r *rawStore) Delete(ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, cached runtime.Object, opts apistorage.DeleteOptions,
) error {
	return r.writing(func() error { return r.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts) })
}

func (r *rawStore) writing(do func() error) error {
	if r.write == nil {
		return do()
	}
	return r.write(do)
}

func (r *rawStore) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watches, ctx)
	})
	r.mu.Lock()
	if r.watches == nil {
		r.watches = map[context.Context]func(){}
	}
	r.watches[ctx] = cancel
	r.mu.Unlock()
	return r.Interface.Watch(ctx, key, opts)
}

func (r *rawStore) breakWatches() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cancel := range r.watches {
		cancel()
	}
}

// openWatches returns the number of open watches.
func (r *rawStore) openWatches() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.watches)
}

// faulty puts a rawStore between the decorator and its storage.
type faulty struct {
	*Decorator
	raw *rawStore
}

func (f faulty) Store(resource schema.GroupResource, root string, newObject func() runtime.Object, inner apistorage.Interface) apistorage.Interface {
	f.raw.Interface = inner
	return f.Decorator.Store(resource, root, newObject, f.raw)
}

var envs atomic.Int64

// newEnv makes a server with its own clock and an empty storage.
func newEnv(t testing.TB, options ...func(*Options)) *env {
	t.Helper()
	return newEnvAt(t, fmt.Sprintf("/%d", envs.Add(1)), options...)
}

// newEnvAt makes a server on the objects that are stored under a prefix.
func newEnvAt(t testing.TB, prefix string, options ...func(*Options)) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	e := &env{t: t, ctx: ctx, prefix: prefix, clock: clocktesting.NewFakeClock(time.Now()), raw: &rawStore{}, events: make(chan Event, 10_000)}
	o := Options{Clock: e.clock, Observe: func(ev Event) {
		select {
		case e.events <- ev:
		default:
		}
	}}
	for _, option := range options {
		option(&o)
	}
	if c, ok := o.Clock.(*clocktesting.FakeClock); ok {
		e.clock = c
	}
	e.d = New(o)
	factory := storage.NewFactory(nil, database, faulty{e.d, e.raw})
	config := storagebackend.NewDefaultConfig(e.prefix, stored()).
		ForResource(schema.GroupResource{Resource: "configmaps"})
	restOptions := factory.For(config, "/configmaps")
	store, destroy, err := restOptions.Decorator(config, restOptions.ResourcePrefix,
		func(obj runtime.Object) (string, error) { return keyOf(obj.(*corev1.ConfigMap).Name), nil },
		func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} },
		apistorage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.store = store
	e.end = sync.OnceFunc(func() {
		e.d.Close()
		destroy()
		factory.Close()
		cancel()
	})
	t.Cleanup(e.end)
	return e
}

// stored stores protobuf, as the server does.
func stored() runtime.Codec {
	s := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	return scheme.Codecs.CodecForVersions(s, s, corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
}

func keyOf(name string) string { return "/configmaps/ns/" + name }

// object is a config map that waits for the named initializers; with none it is
// initialized.
func object(name string, waitingFor ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "ns", UID: uuid.NewUUID(), CreationTimestamp: metav1.Now(),
	}}
	if len(waitingFor) > 0 {
		initializers.Set(c, field(waitingFor...))
	}
	return c
}

func field(names ...string) *initializers.Initializers {
	i := &initializers.Initializers{}
	for _, name := range names {
		i.Pending = append(i.Pending, initializers.Initializer{Name: name})
	}
	return i
}

// create stores an object, for a creator that waits unless creation is nil.
func (e *env) create(c *corev1.ConfigMap, creation *Creation) *corev1.ConfigMap {
	e.t.Helper()
	ctx := e.ctx
	if creation != nil {
		ctx = WithCreation(ctx, creation)
	}
	out := &corev1.ConfigMap{}
	if err := e.store.Create(ctx, keyOf(c.Name), c, out, 0); err != nil {
		e.t.Fatal(err)
	}
	return out
}

// waiting is the result that a creator gets in the end.
type waiting struct {
	done chan struct{}
	obj  runtime.Object
	err  error
}

// begin creates an object and waits for it in the background.
func (e *env) begin(ctx context.Context, c *corev1.ConfigMap) *waiting {
	e.t.Helper()
	var creation Creation
	out := e.create(c, &creation)
	w := &waiting{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.obj, w.err = creation.Wait(ctx, out)
	}()
	return w
}

// result returns the creator's result.
func (w *waiting) result(t testing.TB) (runtime.Object, error) {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(patience):
		t.Fatal("the creator still waits")
	}
	return w.obj, w.err
}

// refused fails the test unless the error is an API status with the code and a message that contains text.
func refused(t testing.TB, err error, code int32, text string) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code || !strings.Contains(err.Error(), text) {
		t.Fatalf("error %v, want %d that says %q", err, code, text)
	}
}

// write changes an object through a store.
func (e *env) write(s apistorage.Interface, name string, change func(*corev1.ConfigMap)) {
	e.t.Helper()
	out := &corev1.ConfigMap{}
	err := s.GuaranteedUpdate(e.ctx, keyOf(name), out, false, nil, apistorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		change(obj.(*corev1.ConfigMap))
		return obj, nil
	}), nil)
	if err != nil {
		e.t.Error(err)
	}
}

// setField changes metadata.initializers.
func setField(f *initializers.Initializers) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) { initializers.Set(c, f) }
}

// failed is a field with a result.
func failed(code int32, message string) *initializers.Initializers {
	f := field("a.example.com")
	f.Result = &metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}
	return f
}

// get reads an object as a client does; nil if it does not exist.
func (e *env) get(name string, r Reading) *corev1.ConfigMap {
	e.t.Helper()
	out := &corev1.ConfigMap{}
	err := e.store.Get(WithReading(e.ctx, r), keyOf(name), apistorage.GetOptions{}, out)
	if apistorage.IsNotFound(err) {
		return nil
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// pending describes the pending initializers of a stored object.
func (e *env) pending(name string) string {
	e.t.Helper()
	return show(e.t, e.get(name, Reading{}))
}

// show describes the pending initializers of an object.
func show(t testing.TB, c *corev1.ConfigMap) string {
	t.Helper()
	if c == nil {
		return "absent"
	}
	f, err := initializers.Get(c)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		return "initialized"
	}
	var names []string
	for _, p := range f.Pending {
		names = append(names, strings.TrimSuffix(p.Name, ".example.com"))
	}
	return strings.Join(names, " ")
}

// await polls until the condition is true.
func (e *env) await(what string, condition func() bool) {
	e.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			e.t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// awaitPending polls until the object waits for the given names.
func (e *env) awaitPending(name, want string) {
	e.t.Helper()
	e.await(name+" waits for "+want, func() bool { return e.pending(name) == want })
}

// awaitEvent returns the next event of a kind; others are skipped.
func (e *env) awaitEvent(kind EventKind) Event {
	e.t.Helper()
	for {
		select {
		case ev := <-e.events:
			if ev.Kind == kind {
				return ev
			}
		case <-e.ctx.Done():
			e.t.Fatalf("no event of kind %d within %s", kind, patience)
		}
	}
}

// count returns the number of events of a kind since the last call.
func (e *env) count(kind EventKind) int {
	n := 0
	for {
		select {
		case ev := <-e.events:
			if ev.Kind == kind {
				n++
			}
		default:
			return n
		}
	}
}

// followed returns the number of objects that the server follows.
func (e *env) followed() int {
	t := e.store.(*store).tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.entries)
}

// watcher opens a watch as a client does.
func (e *env) watcher(r Reading, selector fields.Selector, version string) watch.Interface {
	e.t.Helper()
	if selector == nil {
		selector = fields.Everything()
	}
	w, err := e.store.Watch(WithReading(e.ctx, r), "/configmaps/", apistorage.ListOptions{
		ResourceVersion: version, Recursive: true,
		Predicate: apistorage.SelectionPredicate{Label: labels.Everything(), Field: selector, GetAttrs: apistorage.DefaultNamespaceScopedAttr},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(w.Stop)
	return w
}

// next returns the next event of a watch as text.
func (e *env) next(w watch.Interface) string {
	e.t.Helper()
	select {
	case ev, ok := <-w.ResultChan():
		if !ok {
			e.t.Fatal("the watch ended")
		}
		obj := ev.Object
		if c, ok := obj.(runtime.CacheableObject); ok {
			obj = c.GetObject()
		}
		c, ok := obj.(*corev1.ConfigMap)
		if !ok {
			e.t.Fatalf("%s %v", ev.Type, obj)
		}
		f, err := initializers.Get(c)
		if err != nil {
			e.t.Fatal(err)
		}
		text := fmt.Sprintf("%s %s %s", ev.Type, c.Name, show(e.t, c))
		if f != nil && f.Result != nil {
			text += " failed"
		}
		return text
	case <-e.ctx.Done():
		e.t.Fatalf("no event within %s", patience)
		return ""
	}
}

// runtimeObject is short for the type in the signatures of storage.
type runtimeObject = runtime.Object
