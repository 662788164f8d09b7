package stores

import (
	"context"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	jobstorage "k8s.io/kubernetes/pkg/registry/batch/job/storage"
	podstorage "k8s.io/kubernetes/pkg/registry/core/pod/storage"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// letInitializersChange lets initializers change fields of a pod or a job that are otherwise
// immutable: until an object is initialized, its updates are part of its creation, and are
// validated as a create. (Releases with initializers did so for pods.)
func letInitializersChange(groups []Group) {
	for v := range Versions(groups) {
		for _, storage := range v.Storage {
			switch s := storage.(type) {
			case *podstorage.REST:
				judgeAsCreate(s.Store)
			case *jobstorage.REST:
				judgeAsCreate(s.Store)
			}
		}
	}
}

func judgeAsCreate(store *genericregistry.Store) {
	if _, done := store.UpdateStrategy.(uncreated); !done {
		store.UpdateStrategy = uncreated{store.UpdateStrategy.(updateStrategy), store.CreateStrategy}
	}
}

// updateStrategy has all methods that k8s.io/apiserver looks for in the update strategies of pods
// and jobs: it silently skips a method that a wrapper leaves out.
type updateStrategy interface {
	rest.RESTUpdateStrategy
	rest.DeclarativeValidationStrategy
}

// uncreated is the update strategy of objects whose creation lasts until they are
// initialized.
type uncreated struct {
	updateStrategy
	create rest.RESTCreateStrategy
}

func (u uncreated) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	if initializers.Has(old) {
		return u.create.Validate(ctx, obj)
	}
	return u.updateStrategy.ValidateUpdate(ctx, obj, old)
}

func (u uncreated) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type,
	config rest.DeclarativeValidationConfig,
) field.ErrorList {
	if initializers.Has(old) {
		old, op = nil, operation.Create
	}
	return u.updateStrategy.ValidateDeclaratively(ctx, obj, old, errs, op, config)
}
