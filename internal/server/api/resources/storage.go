package resources

import (
	"context"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/stack"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/waiting"
)

// As a storage, a call explains errors, and returns bare objects where the client may only get those. The
// handlers of a verb get the call only if the storage of the endpoint has the verb.
var (
	_ rest.Patcher                      = &call{}
	_ rest.Creater                      = &call{}
	_ rest.Lister                       = &call{}
	_ rest.Watcher                      = &call{}
	_ rest.GracefulDeleter              = &call{}
	_ rest.CorruptObjectDeleterProvider = &call{}
	_ rest.CollectionDeleter            = &call{}
)

// forClient returns an object, list or event as the client may get it.
func (c *call) forClient(obj runtime.Object) runtime.Object {
	if c.bare {
		return bare(obj)
	}
	return obj
}

// New implements rest.Creater and rest.Updater.
func (c *call) New() runtime.Object { return c.Storage.New() }

// NewList implements rest.Lister.
func (c *call) NewList() runtime.Object { return c.Storage.(rest.Lister).NewList() }

// ConvertToTable implements rest.Lister.
func (c *call) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return c.Storage.(rest.Lister).ConvertToTable(ctx, obj, options)
}

// Get implements rest.Getter.
func (c *call) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := c.Storage.(rest.Getter).Get(ctx, name, options)
	return c.forClient(obj), explainRead(err)
}

// List implements rest.Lister. It lists again when the list does not come from the store.
func (c *call) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	lister := c.Storage.(rest.Lister)
	list, err := lister.List(ctx, options)
	if err == nil && c.listing != nil && !c.listing.Joins(list) {
		list, err = lister.List(ctx, options)
	}
	return c.forClient(list), err
}

// Watch implements rest.Watcher.
func (c *call) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	events, err := c.Storage.(rest.Watcher).Watch(ctx, options)
	if err != nil || !c.bare {
		return events, explainRead(err)
	}
	return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
		if initializers.Has(e.Object) {
			e.Object = bare(e.Object)
		}
		return e, true
	}), nil
}

// awaits reports whether a create waits until the object is initialized (S11.24).
func (c *call) awaits() bool { return c.waits && !initialization.Includes(c.req) }

// Create implements rest.Creater. It notes whether the created object is uninitialized. A create
// that waits does so after the server's handlers have returned if that is possible.
func (c *call) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	creation, storing := &initialization.Creation{}, ctx
	if c.awaits() {
		storing = initialization.WithCreation(ctx, creation)
	}
	c.own.putBack()
	created, err := c.Storage.(rest.Creater).Create(storing, obj, validate, options)
	if err != nil {
		return nil, explain(c.Kind, "", err)
	}
	if creation.Waits() {
		if c.counts() {
			creation.TakeStored(created)
		}
		if c.leave(ctx, creation) {
			return nil, waiting.ErrLeft
		}
		// The requests of initializers need places.
		inflight.Yield(ctx)
	}
	created, err = creation.Wait(ctx, created)
	c.uninitialized = c.waits && err == nil && initializers.Has(created)
	return c.forClient(created), err
}

// Update implements rest.Updater. It notes whether it created an uninitialized object. Such a create
// does not wait (S11.23).
func (c *call) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	stack.Grow()
	stored, created, err := c.Storage.(rest.Updater).Update(ctx, name, completeUpdate{obj, c.own}, validateCreate, validate, force, options)
	c.own.updated = true
	c.uninitialized = err == nil && created && initializers.Has(stored)
	return c.forClient(stored), created, explain(c.Kind, name, err)
}

// Delete implements rest.GracefulDeleter.
func (c *call) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	deleted, immediately, err := c.Storage.(rest.GracefulDeleter).Delete(ctx, name, validate, options)
	return c.forClient(deleted), immediately, err
}

// GetCorruptObjDeleter implements rest.CorruptObjectDeleterProvider: k8s.io/apiserver asks its
// storage for the deleter of objects that cannot be read. The deleter does not return these objects.
func (c *call) GetCorruptObjDeleter() rest.GracefulDeleter {
	if p, ok := c.Storage.(rest.CorruptObjectDeleterProvider); ok {
		return p.GetCorruptObjDeleter()
	}
	return nil
}

// DeleteCollection implements rest.CollectionDeleter.
func (c *call) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *metainternalversion.ListOptions) (runtime.Object, error) {
	deleted, err := c.Storage.(rest.CollectionDeleter).DeleteCollection(ctx, validate, options, list)
	return c.forClient(deleted), err
}
