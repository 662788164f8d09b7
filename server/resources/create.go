package resources

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/server/inflight"
	"github.com/gatehouse-dev/gatehouse/server/initialization"
)

// accepting serves a request that may create an object with a handler that is
// made for it, and answers 202 where the library says 201 and the object is
// uninitialized (S11.27). The handler's storage says by the pointer whether it
// is.
func accepting(make func(accepted *bool) http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		accepted := false
		serve := make(&accepted)
		serve(responsewriter.WrapForHTTP1Or2(&acceptedWriter{ResponseWriter: w, accepted: &accepted}), req)
	}
}

// acceptedWriter is the response of accepting.
type acceptedWriter struct {
	http.ResponseWriter
	accepted *bool
}

var _ responsewriter.UserProvidedDecorator = (*acceptedWriter)(nil)

func (w *acceptedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *acceptedWriter) WriteHeader(code int) {
	if code == http.StatusCreated && *w.accepted {
		code = http.StatusAccepted
	}
	w.ResponseWriter.WriteHeader(code)
}

// creator is a storage whose creates wait until the object is initialized
// (S11.24).
type creator struct {
	rest.Creater
	// leave, which may be nil, makes a wait that of an absent; it returns false
	// when the request is answered already.
	leave func(context.Context, *initialization.Creation) bool
}

// errLeft ends the work of the library on a create that is answered by absent.
var errLeft = apierrors.NewServiceUnavailable("the object is stored and not yet initialized")

func (c creator) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	creation := &initialization.Creation{}
	created, err := c.Creater.Create(initialization.WithCreation(ctx, creation), obj, validate, options)
	if err != nil {
		return nil, err
	}
	if creation.Waits() {
		if c.leave != nil && c.leave(ctx, creation) {
			return nil, errLeft
		}
		// The initializers need to get in.
		inflight.Yield(ctx)
	}
	return creation.Wait(ctx, created)
}

// telling is a storage that tells by the pointer whether what it created is
// uninitialized.
type telling struct {
	rest.Creater
	accepted *bool
}

func (t telling) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := t.Creater.Create(ctx, obj, validate, options)
	*t.accepted = err == nil && initializers.Has(created)
	return created, err
}

// creatingUpdater and creatingPatcher are storages whose updates may create.
// Those creates do not wait (S11.23).
type creatingUpdater struct {
	rest.Updater
	accepted *bool
}

func (u creatingUpdater) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	stored, created, err := u.Updater.Update(ctx, name, obj, validateCreate, validate, force, options)
	*u.accepted = err == nil && created && initializers.Has(stored)
	return stored, created, err
}

type creatingPatcher struct {
	rest.Patcher
	accepted *bool
}

func (p creatingPatcher) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return creatingUpdater{p.Patcher, p.accepted}.Update(ctx, name, obj, validateCreate, validate, force, options)
}
