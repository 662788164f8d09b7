package customresources

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// instances is the storage of custom objects in one version. Its watches end when the definition of
// the CRD is replaced, so that clients watch again with the new definition.
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

// statusREST is the storage of the status subresource of one version.
type statusREST struct{ store *registry.Store }

// New implements rest.Storage.
func (s *statusREST) New() runtime.Object { return s.store.New() }

// Destroy implements rest.Storage. It does nothing, because the storage belongs to the resource.
func (s *statusREST) Destroy() {}

// Get implements rest.Getter, for patches.
func (s *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update implements rest.Updater. It never creates an object.
func (s *statusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, create, update, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

// scale has no storage of its own that could be destroyed.
type scale struct{ *customresource.ScaleREST }

func (scale) Destroy() {}
