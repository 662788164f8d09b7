package stores

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// scaleStorage is the storage of the scale of a workload kind.
type scaleStorage interface {
	rest.Storage
	rest.Patcher
	rest.TableConvertor
	rest.GroupVersionKindProvider
}

// scaleAs serves scale in a version that upstream's scale storages do not expect in a request: such
// a request would crash the process. scaleAs presents another version to them, and the owners of
// spec.replicas are kept under its name.
type scaleAs struct {
	scaleStorage
	version schema.GroupVersion
}

// Update implements rest.Updater.
func (s scaleAs) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if info, ok := request.RequestInfoFrom(ctx); ok {
		shown := *info
		shown.APIGroup, shown.APIVersion = s.version.Group, s.version.Version
		ctx = request.WithRequestInfo(ctx, &shown)
	}
	return s.scaleStorage.Update(ctx, name, obj, validateCreate, validate, force, options)
}
