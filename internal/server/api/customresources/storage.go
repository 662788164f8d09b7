package customresources

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/watch"
)

// instances is the storage of custom objects in one version. Its watches end
// when the definition is replaced, so that clients come back and see the new one.
type instances struct {
	*customresource.REST
	retired context.Context
}

func (i *instances) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(i.retired, cancel)
	context.AfterFunc(ctx, func() { stop() })
	w, err := i.REST.Watch(ctx, options)
	if err != nil {
		cancel()
		if i.retired.Err() != nil {
			err = apierrors.NewServerTimeout(i.DefaultQualifiedResource, "watch", 1)
		}
	}
	return w, err
}

// status and scale have no storage of their own that could be destroyed.
type status struct{ *customresource.StatusREST }

func (status) Destroy() {}

type scale struct{ *customresource.ScaleREST }

func (scale) Destroy() {}
