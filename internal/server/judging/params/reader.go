package params

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// Options configure a Reader.
type Options struct {
	// Strict evaluates every request with params from a read that began after the request did.
	Strict bool
	// Timeout is how long one read may take. A request with time left then begins another read,
	// which may take twice as long. Zero means 5 s.
	Timeout time.Duration
	// StepAside, when set, gives back the place of a request that waits long for a read;
	// the request has its place again when it calls back.
	StepAside func(ctx context.Context) (back func())
	// Observe, when set, is called with how long each read took.
	Observe func(took time.Duration)
	// Follow, when set, calls changed with the keys below a prefix that other servers write,
	// and with the prefix when it may have missed some writes, until the context ends. A prefix
	// is a place of Serve, with a slash after it.
	Follow func(ctx context.Context, prefix string, changed func(key string))

	// maxAge is how long a read serves requests in bounded mode, unless Written or Follow
	// reports a newer write: half a second, except in tests.
	maxAge time.Duration
}

// patience is how long a request waits for a read before it gives back its place.
const patience = 100 * time.Millisecond

// Kinds finds the resource of a kind that users define.
type Kinds interface {
	// ResourceOf returns the resource whose objects have the kind; ok is false when none
	// is served.
	ResourceOf(kind schema.GroupVersionKind) (resource schema.GroupVersionResource, ok bool)
}

// Reader reads params. It implements admission.Params and is safe for concurrent use. It has no
// kinds before Serve.
type Reader struct {
	options Options

	mu struct {
		sync.Mutex
		// builtin has the resources of the built-in kinds; custom finds the resources of custom
		// kinds.
		builtin map[schema.GroupVersionKind]schema.GroupVersionResource
		static  resources.Static
		custom  Kinds
		defined resources.Source
		place   Place
		reads   map[key]*read
		// followed are the places that are followed, and when a param there was last asked
		// for.
		followed map[string]time.Time
	}
	// places are the places from which params were read: a write elsewhere costs one lookup in this
	// map.
	places atomic.Pointer[map[string]bool]
	// follow has the places that Run is to follow.
	follow chan string
}

// Place returns the prefix of the keys of a resource's objects, without the final slash.
type Place func(schema.GroupResource) string

// key names the objects of a read: the object of a name, or the objects of a selector.
type key struct {
	kind            schema.GroupVersionKind
	place           string
	namespace, name string
	selector        string
}

// covers reports whether the object that is stored at a key belongs to the objects of the read.
func (k *key) covers(stored string) bool {
	rest, below := strings.CutPrefix(stored, k.place+"/")
	switch {
	case !below:
		return false
	case rest == "":
		return true
	case k.selector != "":
		return k.namespace == "" || strings.HasPrefix(rest, k.namespace+"/")
	case k.namespace != "":
		return rest == k.namespace+"/"+k.name
	}
	return rest == k.name
}

// read is a read of params. Its result is set when done is closed.
type read struct {
	begin   time.Time
	done    chan struct{}
	objects []runtime.Object
	err     error
	// timedOut reports whether the read failed because it took too long.
	timedOut bool
}

// maxReads bounds the cached reads; beyond it, reads that serve no request any more are dropped.
const maxReads = 4096

// New makes a Reader.
func New(o Options) *Reader {
	o.maxAge = cmp.Or(o.maxAge, 500*time.Millisecond)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	r := &Reader{options: o, follow: make(chan string, maxFollowed)}
	r.mu.reads, r.mu.followed = map[key]*read{}, map[string]time.Time{}
	r.places.Store(&map[string]bool{})
	return r
}

// Serve gives the reader the kinds: static has the built-in kinds, custom finds the kinds that
// users define, and defined serves these. place returns where objects are stored; nil means that
// the server does not call Written.
func (r *Reader) Serve(static resources.Static, custom Kinds, defined resources.Source, place Place) {
	builtin := map[schema.GroupVersionKind]schema.GroupVersionResource{}
	for resource, endpoints := range static {
		e := endpoints[""]
		if e == nil {
			continue
		}
		if known, ok := builtin[e.Kind]; ok && known.Resource < resource.Resource {
			continue
		}
		builtin[e.Kind] = resource
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.builtin, r.mu.static, r.mu.custom, r.mu.defined, r.mu.place = builtin, static, custom, defined, place
}

// endpoint returns the endpoint of the objects of a kind, nil when the kind is not served, and
// the place where the objects are stored, if they are. The caller calls done when it does not
// use the endpoint any more.
func (r *Reader) endpoint(kind schema.GroupVersionKind) (e *resources.Endpoint, place string, done func()) {
	r.mu.Lock()
	static, custom, defined, placed := r.mu.static, r.mu.custom, r.mu.defined, r.mu.place
	resource, ok := r.mu.builtin[kind]
	r.mu.Unlock()
	switch {
	case ok:
		e, done = static.Lookup(resource, "")
	case custom != nil:
		if resource, ok = custom.ResourceOf(kind); ok {
			e, done = defined.Lookup(resource, "")
		}
	}
	if e != nil && placed != nil && watched(e) {
		place = placed(resource.GroupResource())
	}
	if done == nil {
		done = func() {}
	}
	return e, place, done
}

// Scope implements admission.Params.
func (r *Reader) Scope(_ context.Context, kind schema.GroupVersionKind) (namespaced, served bool, err error) {
	e, _, done := r.endpoint(kind)
	if e == nil {
		return false, false, nil
	}
	defer done()
	return e.Discovery.Namespaced, true, nil
}

// HasParams reports whether objects of a kind can be params, unless the kind is not served
// (S15.14).
func (r *Reader) HasParams(kind schema.GroupVersionKind) bool {
	e, _, done := r.endpoint(kind)
	defer done()
	return e == nil || hasParams(e)
}

// hasParams reports whether the objects of an endpoint can be params. Objects that cannot be
// watched can be params, too, except objects of the server's own kinds: the server reads the
// params of a policy to make the state of the policy, and such a read would wait for itself.
func hasParams(e *resources.Endpoint) bool {
	_, gets := e.Storage.(rest.Getter)
	_, lists := e.Storage.(rest.Lister)
	return gets && lists && (watched(e) || e.Kind.Group != registration.OwnGroup)
}

func watched(e *resources.Endpoint) bool {
	_, watches := e.Storage.(rest.Watcher)
	return watches
}

// errNoParams returns the error of kube-apiserver for a kind that it cannot list.
func errNoParams(kind schema.GroupVersionKind) error {
	version, name := kind.ToAPIVersionAndKind()
	return fmt.Errorf("paramKind kind `&ParamKind{APIVersion:%s,Kind:%s,}` not yet synced to use for admission", version, name)
}

// Get implements admission.Params.
func (r *Reader) Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
	found, err := r.shared(ctx, key{kind: kind, namespace: namespace, name: name}, func(ctx context.Context, e *resources.Endpoint) ([]runtime.Object, error) {
		obj, err := e.Storage.(rest.Getter).Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []runtime.Object{obj}, nil
	})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// List implements admission.Params.
func (r *Reader) List(ctx context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	found, err := r.shared(ctx, key{kind: kind, namespace: namespace, selector: "?" + selector.String()}, func(ctx context.Context, e *resources.Endpoint) ([]runtime.Object, error) {
		lister, ok := e.Storage.(rest.Lister)
		if !ok {
			return nil, fmt.Errorf("%s cannot be listed", e.Discovery.Name)
		}
		list, err := lister.List(ctx, &metainternalversion.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, err
		}
		return meta.ExtractList(list)
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

// find reads the objects of an endpoint.
type find func(context.Context, *resources.Endpoint) ([]runtime.Object, error)

// shared returns the objects of a read that is new enough for the request of ctx. A request with
// time left may wait longer than one read may take.
func (r *Reader) shared(ctx context.Context, k key, from find) ([]runtime.Object, error) {
	e, place, done := r.endpoint(k.kind)
	done()
	if e != nil && !hasParams(e) {
		return nil, errNoParams(k.kind)
	}
	k.place = place
	_, limited := ctx.Deadline()
	for timeout := r.options.Timeout; ; timeout *= 2 {
		one := r.current(ctx, k, timeout, from)
		if err := r.await(ctx, one); err != nil {
			return nil, fmt.Errorf("reading params: %w", err)
		}
		if !limited || !one.timedOut {
			return one.objects, one.err
		}
	}
}

// await returns when a read is done, or with the reason why ctx ended before.
func (r *Reader) await(ctx context.Context, one *read) error {
	select {
	case <-one.done:
		return nil
	default:
	}
	patient := time.NewTimer(patience)
	defer patient.Stop()
	for {
		select {
		case <-one.done:
			return nil
		case <-patient.C:
			if r.options.StepAside != nil {
				defer r.options.StepAside(ctx)()
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// current returns a read that is new enough for the request of ctx: a finished or running read, or
// else a new one.
func (r *Reader) current(ctx context.Context, k key, timeout time.Duration, from find) *read {
	now := time.Now()
	notBefore := now.Add(-r.options.maxAge)
	if r.options.Strict {
		notBefore = now
		if received, ok := request.ReceivedTimestampFrom(ctx); ok {
			notBefore = received
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.mu.reads[k]
	if one == nil || one.begin.Before(notBefore) {
		r.forget(now)
		one = &read{begin: now, done: make(chan struct{})}
		r.mu.reads[k] = one
		r.use(k.place, now)
		// Other requests may wait for the read when this request is over.
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		go func() {
			defer cancel()
			r.read(reading, k, one, from)
		}()
	}
	return one
}

// forget drops the reads that serve no request any more, if there are many. The lock is
// held.
func (r *Reader) forget(now time.Time) {
	if len(r.mu.reads) < maxReads {
		return
	}
	for k, one := range r.mu.reads {
		if now.Sub(one.begin) > r.options.Timeout+r.options.maxAge {
			delete(r.mu.reads, k)
		}
	}
}

// read performs a read, and closes done for the requests that wait. A failed read serves only these
// requests.
func (r *Reader) read(ctx context.Context, k key, one *read, from find) {
	defer close(one.done)
	if r.options.Observe != nil {
		defer func() { r.options.Observe(time.Since(one.begin)) }()
	}
	// A kind that is no longer served has no objects (S15.8).
	one.err = apierrors.NewNotFound(schema.GroupResource{Group: k.kind.Group, Resource: k.kind.Kind}, k.name)
	e, _, done := r.endpoint(k.kind)
	if e != nil {
		defer done()
		one.objects, one.err = r.from(request.WithNamespace(ctx, k.namespace), k, e, from)
	}
	if one.err != nil && !apierrors.IsNotFound(one.err) {
		one.timedOut = ctx.Err() != nil
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.mu.reads[k] == one {
			delete(r.mu.reads, k)
		}
	}
}

func (r *Reader) from(ctx context.Context, k key, e *resources.Endpoint, from find) ([]runtime.Object, error) {
	found, err := from(ctx, e)
	if err != nil {
		return nil, err
	}
	scope := e.Scope
	if e.Bind != nil {
		scope = e.Bind(ctx)
	}
	objects := make([]runtime.Object, len(found))
	for i, obj := range found {
		if objects[i], err = convertStored(obj, k.kind, scope.Convertor); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(objects, func(a, b runtime.Object) int {
		x, y := a.(*unstructured.Unstructured), b.(*unstructured.Unstructured)
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	return objects, nil
}

// convertStored converts a stored object to a kind, as clients see it (S15.11).
func convertStored(obj runtime.Object, kind schema.GroupVersionKind, convertor runtime.ObjectConvertor) (runtime.Object, error) {
	if obj.GetObjectKind().GroupVersionKind() != kind {
		converted, err := convertor.ConvertToVersion(obj, kind.GroupVersion())
		if err != nil {
			return nil, fmt.Errorf("converting a param: %w", err)
		}
		obj = converted
	}
	u := &unstructured.Unstructured{}
	if content, ok := obj.(*unstructured.Unstructured); ok {
		u = content.DeepCopy()
	} else {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, fmt.Errorf("reading a param: %w", err)
		}
		u.Object = content
	}
	u.SetGroupVersionKind(kind)
	return u, initializers.Expose(u.Object)
}
