package resources

import (
	"context"
	"net/http"
	"strings"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/initialization"
)

// transforms reports whether the client may get tables or bare metadata instead of
// objects. The library encodes tables and metadata with a codec of its own, which would show
// the annotation of initializers: they are made of objects without that annotation.
func transforms(req *http.Request) bool {
	for _, accept := range req.Header.Values("Accept") {
		// A parameter's name and its value may have blanks around them.
		for found := true; found; {
			if _, accept, found = strings.Cut(accept, "as"); found && strings.HasPrefix(strings.TrimLeft(accept, " \t"), "=") {
				return true
			}
		}
	}
	return false
}

// bare returns the object, list or event without metadata.initializers. The result is nearly
// always the argument itself, and otherwise a copy.
func bare(obj runtime.Object) runtime.Object {
	if obj == nil || !initialization.Carries(obj) {
		return obj
	}
	if shared, ok := obj.(runtime.CacheableObject); ok {
		// GetObject returns a copy.
		obj = shared.GetObject()
	} else {
		obj = obj.DeepCopyObject()
	}
	initialization.Strip(obj)
	return obj
}

// The following are storages that return bare objects.

type bareLister struct{ rest.Lister }

func (b bareLister) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	list, err := b.Lister.List(ctx, options)
	return bare(list), err
}

type bareDeleter struct{ rest.GracefulDeleter }

func (b bareDeleter) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	deleted, immediately, err := b.GracefulDeleter.Delete(ctx, name, validate, options)
	return bare(deleted), immediately, err
}

var _ rest.CorruptObjectDeleterProvider = bareDeleter{}

// GetCorruptObjDeleter implements rest.CorruptObjectDeleterProvider: the library asks its
// storage for the deleter of objects that cannot be read.
func (b bareDeleter) GetCorruptObjDeleter() rest.GracefulDeleter {
	if p, ok := b.GracefulDeleter.(rest.CorruptObjectDeleterProvider); ok {
		// The deleter does not return the objects that it deletes.
		return p.GetCorruptObjDeleter()
	}
	return nil
}

type bareCollectionDeleter struct{ rest.CollectionDeleter }

func (b bareCollectionDeleter) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *metainternalversion.ListOptions) (runtime.Object, error) {
	deleted, err := b.CollectionDeleter.DeleteCollection(ctx, validate, options, list)
	return bare(deleted), err
}
