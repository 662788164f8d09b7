package params

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
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

	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/server/resources"
)

// Options say how a Reader works.
type Options struct {
	// Strict makes every request be judged by a read that began after the request did.
	Strict bool
	// MaxAge is how long a read serves requests in bounded mode. Zero means half a second.
	MaxAge time.Duration
	// Timeout is how long one read may take. Zero means 5 s.
	Timeout time.Duration
}

// Kinds finds the resource of a kind that users define.
type Kinds interface {
	// ResourceOf returns the resource whose objects have the kind; ok is false when none
	// is served.
	ResourceOf(kind schema.GroupVersionKind) (resource schema.GroupVersionResource, ok bool)
}

// Reader reads params. It implements admission.Params and is safe for concurrent use. It
// knows no kinds before Serve.
type Reader struct {
	options Options

	mu struct {
		sync.Mutex
		// builtin has the resources of the built-in kinds; custom finds the others.
		builtin map[schema.GroupVersionKind]schema.GroupVersionResource
		static  resources.Static
		custom  Kinds
		defined resources.Source
		reads   map[key]*read
	}
}

// key is what is read: the object of a name, or those of a selector.
type key struct {
	kind            schema.GroupVersionKind
	namespace, name string
	selector        string
}

// read is one read. Its result is there when done is closed.
type read struct {
	begin   time.Time
	done    chan struct{}
	objects []runtime.Object
	err     error
}

// maxReads bounds how many reads are remembered; beyond it, those that serve nobody any
// more are forgotten.
const maxReads = 4096

// New makes a Reader.
func New(o Options) *Reader {
	o.MaxAge = cmp.Or(o.MaxAge, 500*time.Millisecond)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	r := &Reader{options: o}
	r.mu.reads = map[key]*read{}
	return r
}

// Serve tells the reader where objects are: static has the built-in kinds, and custom finds
// those that users define, which defined serves.
func (r *Reader) Serve(static resources.Static, custom Kinds, defined resources.Source) {
	builtin := map[schema.GroupVersionKind]schema.GroupVersionResource{}
	for resource, endpoints := range static {
		e := endpoints[""]
		if e == nil {
			continue
		}
		if _, ok := e.Storage.(rest.Getter); !ok {
			continue
		}
		if known, ok := builtin[e.Kind]; ok && known.Resource < resource.Resource {
			continue
		}
		builtin[e.Kind] = resource
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.builtin, r.mu.static, r.mu.custom, r.mu.defined = builtin, static, custom, defined
}

// endpoint finds what serves the objects of a kind; nil when nothing does. done is called
// when the endpoint is not used any more.
func (r *Reader) endpoint(kind schema.GroupVersionKind) (e *resources.Endpoint, done func()) {
	r.mu.Lock()
	static, custom, defined := r.mu.static, r.mu.custom, r.mu.defined
	resource, ok := r.mu.builtin[kind]
	r.mu.Unlock()
	if ok {
		return static.Lookup(resource, "")
	}
	if custom == nil {
		return nil, nil
	}
	if resource, ok = custom.ResourceOf(kind); !ok {
		return nil, nil
	}
	return defined.Lookup(resource, "")
}

// Scope implements admission.Params.
func (r *Reader) Scope(_ context.Context, kind schema.GroupVersionKind) (namespaced, served bool, err error) {
	e, done := r.endpoint(kind)
	if e == nil {
		return false, false, nil
	}
	if done != nil {
		defer done()
	}
	return e.Discovery.Namespaced, true, nil
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

// shared returns what a read finds that is new enough for the request of ctx: one that was
// made or is being made, or else a new one.
func (r *Reader) shared(ctx context.Context, k key, from func(context.Context, *resources.Endpoint) ([]runtime.Object, error)) ([]runtime.Object, error) {
	now := time.Now()
	notBefore := now.Add(-r.options.MaxAge)
	if r.options.Strict {
		notBefore = now
		if received, ok := request.ReceivedTimestampFrom(ctx); ok {
			notBefore = received
		}
	}
	r.mu.Lock()
	one := r.mu.reads[k]
	if one == nil || one.begin.Before(notBefore) {
		r.forget(now)
		one = &read{begin: now, done: make(chan struct{})}
		r.mu.reads[k] = one
		// Others may wait for it when this request is over.
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.Timeout)
		go func() {
			defer cancel()
			r.read(reading, k, one, from)
		}()
	}
	r.mu.Unlock()
	select {
	case <-one.done:
		return one.objects, one.err
	case <-ctx.Done():
		return nil, fmt.Errorf("reading params: %w", context.Cause(ctx))
	}
}

// forget drops the reads that serve no request any more, if there are many. The lock is
// held.
func (r *Reader) forget(now time.Time) {
	if len(r.mu.reads) < maxReads {
		return
	}
	for k, one := range r.mu.reads {
		if now.Sub(one.begin) > r.options.Timeout+r.options.MaxAge {
			delete(r.mu.reads, k)
		}
	}
}

// read reads, and tells who waits. One that failed serves only those.
func (r *Reader) read(ctx context.Context, k key, one *read, from func(context.Context, *resources.Endpoint) ([]runtime.Object, error)) {
	defer close(one.done)
	// A kind that vanished meanwhile has no objects (S15.8).
	one.err = apierrors.NewNotFound(schema.GroupResource{Group: k.kind.Group, Resource: k.kind.Kind}, k.name)
	e, done := r.endpoint(k.kind)
	if e != nil {
		if done != nil {
			defer done()
		}
		one.objects, one.err = r.from(request.WithNamespace(ctx, k.namespace), k, e, from)
	}
	if one.err != nil && !apierrors.IsNotFound(one.err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.mu.reads[k] == one {
			delete(r.mu.reads, k)
		}
	}
}

func (r *Reader) from(ctx context.Context, k key, e *resources.Endpoint, from func(context.Context, *resources.Endpoint) ([]runtime.Object, error)) ([]runtime.Object, error) {
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
		if objects[i], err = shown(obj, k.kind, scope.Convertor); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(objects, func(a, b runtime.Object) int {
		x, y := a.(*unstructured.Unstructured), b.(*unstructured.Unstructured)
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	return objects, nil
}

// shown is a stored object as clients see it in a kind (S15.11).
func shown(obj runtime.Object, kind schema.GroupVersionKind, convertor runtime.ObjectConvertor) (runtime.Object, error) {
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
