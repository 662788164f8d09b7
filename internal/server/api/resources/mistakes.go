package resources

import (
	"context"
	"errors"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// explain turns errors that come from a client's mistake, and that the library answers with
// 500, into errors with the right status.
func explain(kind schema.GroupVersionKind, name string, err error) error {
	if err == nil || errors.As(err, new(apierrors.APIStatus)) {
		return err
	}
	if errors.Is(err, apistorage.ErrResourceVersionSetOnCreate) {
		return apierrors.NewBadRequest(err.Error())
	}
	// A resourceVersion that is not a number fails when it is compared.
	if bad := (*strconv.NumError)(nil); errors.As(err, &bad) {
		return apierrors.NewInvalid(kind.GroupKind(), name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), bad.Num, "must be one that the server returned"),
		})
	}
	// Server-side apply does not wrap what the schema says of the patch.
	if strings.HasPrefix(err.Error(), "failed to create typed patch object") {
		return apierrors.NewBadRequest(err.Error())
	}
	return err
}

// explainRead is explain for reads. There the library returns InvalidError only for a parameter
// resourceVersion that is not a number. The text is that of a list, which the library answers
// with 400 itself.
func explainRead(err error) error {
	if errors.As(err, new(apistorage.InvalidError)) {
		return apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	return err
}

// getter and watcher are storages for one call: their errors are explained, and they return bare
// objects where the client may only get those.
type getter struct {
	rest.Getter
	bare bool
}

func (g getter) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := g.Getter.Get(ctx, name, options)
	if g.bare {
		obj = bare(obj)
	}
	return obj, explainRead(err)
}

type watcher struct {
	rest.Watcher
	bare bool
}

func (w watcher) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	events, err := w.Watcher.Watch(ctx, options)
	if err != nil || !w.bare {
		return events, explainRead(err)
	}
	return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
		if initializers.Has(e.Object) {
			e.Object = bare(e.Object)
		}
		return e, true
	}), nil
}

// plainCreater is a storage whose errors are explained.
type plainCreater struct {
	rest.Creater
	kind schema.GroupVersionKind
}

func (c plainCreater) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := c.Creater.Create(ctx, obj, validate, options)
	return created, explain(c.kind, "", err)
}
