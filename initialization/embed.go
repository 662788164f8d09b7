package initialization

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagefactory "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// Registered returns the functions MustAct and Parallel of Options. mustAct reports whether the failure policy
// of a registered initializer is Fail, and parallel whether the initializer is parallel. Both are false for an
// initializer that is not registered (S11.47). current returns nil before the first read of the
// InitializerConfigurations. Until then, mustAct is true for every initializer, so that none is removed.
func Registered(current func() *snapshot.Snapshot) (mustAct, parallel func(initializer string) bool) {
	mustAct = func(name string) bool {
		s := current()
		if s == nil {
			return true
		}
		i := s.Initializer(name)
		return i != nil && !plan.Forgives(i.Entry)
	}
	parallel = func(name string) bool {
		s := current()
		if s == nil {
			return false
		}
		i := s.Initializer(name)
		return i != nil && i.Parallel
	}
	return mustAct, parallel
}

// RESTOptions adds the rules to all stores that registries of k8s.io/apiserver open by the getter. Close is
// called before the first of these stores is closed.
func (d *Decorator) RESTOptions(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return restOptions{getter, d}
}

type restOptions struct {
	generic.RESTOptionsGetter
	d *Decorator
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o restOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	open := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, getAttrs apistorage.AttrFunc, trigger apistorage.IndexerFuncs, indexers *cache.Indexers,
	) (apistorage.Interface, storagefactory.DestroyFunc, error) {
		attributes := o.d.Attributes(config.GroupResource, getAttrs)
		store, destroy, err := open(config, prefix, keyFunc, newFunc, newListFunc, attributes, trigger, indexers)
		if err != nil {
			return nil, nil, err
		}
		return o.d.Store(config.GroupResource, prefix, newFunc, store), func() {
			o.d.Close()
			destroy()
		}, nil
	}
	return options, nil
}

// Handler returns a handler that calls next and applies the rules for uninitialized objects: reads hide them
// from clients that do not ask for them, creates wait, writes to subresources leave the field alone, and a
// create whose response has an uninitialized object gets the code 202. It wraps the handler of the API, behind
// authentication and authorization, and needs the stores of RESTOptions. authorize decides which users get an
// uninitialized object without asking for such objects.
//
// At most creators creates wait at the same time. A further create gets the response of a create that timed out
// at once; its object is stored. creators should be less than the server's limit of concurrent mutating
// requests, since the writes of initializers need some of that limit.
func (d *Decorator) Handler(next http.Handler, authorize authorizer.UnconditionalAuthorizer, creators int) http.Handler {
	places := make(chan struct{}, creators)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, req)
			return
		}
		if Reads(info.Verb) {
			next.ServeHTTP(w, req.WithContext(WithReading(req.Context(), ReadingOf(info, req, authorize))))
			return
		}
		r := &write{keep: info.Subresource != ""}
		if info.Verb == "create" && !r.keep && !Includes(req) {
			r.places = places
		}
		w = responsewriter.WrapForHTTP1Or2(&accepting{w, r})
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), writeKey{}, r)))
	})
}

// write is a write request that came through Handler.
type write struct {
	// keep is set for a request for a subresource: it leaves the field as it is stored (S11.41).
	keep bool
	// places has the places of creators that wait; nil if the request does not wait.
	places chan struct{}
	// uninitialized is set when the request wrote an object that is not initialized.
	uninitialized bool
}

type writeKey struct{}

func writeOf(ctx context.Context) *write {
	w, _ := ctx.Value(writeKey{}).(*write)
	return w
}

// waits reports whether the request is a create that waits.
func (w *write) waits() bool { return w != nil && w.places != nil }

// keeps reports whether the request leaves the field alone.
func (w *write) keeps() bool { return w != nil && w.keep }

// wait blocks the creator of a request of Handler until the object is initialized, and copies the final object
// to out.
func (w *write) wait(ctx context.Context, e *entry, out runtime.Object) error {
	if e == nil {
		return nil
	}
	select {
	case w.places <- struct{}{}:
		defer func() { <-w.places }()
	default:
		e.tracker.leave(e)
		return e.unfinished()
	}
	obj, err := (&Creation{entry: e}).Wait(ctx, out)
	if err != nil {
		return err
	}
	return assign(out, obj)
}

// note records the object that the request wrote.
func (w *write) note(obj runtime.Object) {
	if w != nil {
		w.uninitialized = initializers.Has(obj)
	}
}

// accepting sends 202 instead of k8s.io/apiserver's 201 if the object is uninitialized (S11.27).
type accepting struct {
	http.ResponseWriter
	write *write
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *accepting) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *accepting) WriteHeader(code int) {
	if code == http.StatusCreated && a.write.uninitialized {
		code = http.StatusAccepted
	}
	a.ResponseWriter.WriteHeader(code)
}
