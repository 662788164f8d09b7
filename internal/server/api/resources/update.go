package resources

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/stack"
)

// updater and patcher are storages for one call: their errors are explained, they return bare
// objects where the client may only get those, and they note whether they created an
// uninitialized object. Such a create does not wait (S11.23).
type updater struct {
	rest.Updater
	call *call
	own  *ownFields
}

func (u updater) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	stack.Grow()
	stored, created, err := u.Updater.Update(ctx, name, completeUpdate{obj, u.own}, validateCreate, validate, force, options)
	u.own.updated = true
	u.call.uninitialized = err == nil && created && initializers.Has(stored)
	if u.call.bare {
		stored = bare(stored)
	}
	return stored, created, explain(u.call.Kind, name, err)
}

type patcher struct {
	rest.Patcher
	call *call
	own  *ownFields
}

func (p patcher) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return updater{p.Patcher, p.call, p.own}.Update(ctx, name, obj, validateCreate, validate, force, options)
}
