package initializer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Func completes an object by changing it. Changes of metadata.initializers are lost, as are
// changes of fields that no client may change. It must do no harm when it is called again for the
// same object. Calls for different objects may be concurrent.
type Func func(ctx context.Context, obj *unstructured.Unstructured) error

// Release releases the allocations of Func for an object. It is called for every object that is being deleted
// and has the controller's finalizer, whether it was initialized or not, and whether Func allocated anything
// for it or not. It must do no harm when it is called again for the same object: Release should find the
// allocation by the object's uid. Its changes of the object are lost. Calls for different objects may be
// concurrent; a call of Func and one of Release for the same object never are.
type Release func(ctx context.Context, obj *unstructured.Unstructured) error

// Options describe a controller.
type Options struct {
	// Name is the initializer's name, as in the InitializerConfiguration.
	Name string
	// Config is the client configuration of the server. New does not change it. A QPS of 0 means no limit on
	// the rate of requests: creators wait for them.
	Config *rest.Config
	// Resources are the resources whose objects are initialized.
	Resources []schema.GroupVersionResource
	// Namespace limits the controller to one namespace; empty means all.
	Namespace string
	// Initialize is called for each object on which it is the initializer's turn.
	Initialize Func
	// Finalizer is the finalizer with which the initializer is registered. Release is called
	// before the finalizer is removed. Set both or none. See "Releasing" in the comment of the
	// package.
	Finalizer string
	Release   Release
	// Parallel declares that the initializer is registered with parallel: true. The controller then reads the
	// InitializerConfigurations to know the other parallel initializers. Its user needs the verbs list and
	// watch for that.
	Parallel bool
	// Workers is the number of objects that the controller initializes concurrently; 0 means 4.
	Workers int
	// FirstRetry and LastRetry are the first and the longest wait after a failure; 0 means 50 ms and 5 s.
	FirstRetry, LastRetry time.Duration
}

// Controller initializes objects. It is used once.
type Controller struct {
	options Options
	plain   dynamic.Interface
	queue   workqueue.TypedRateLimitingInterface[item]
	// stores have all objects of the resources, uninitialized ones included.
	stores   map[schema.GroupVersionResource]cache.SharedIndexInformer
	parallel *parallels
}

// item is an object to check.
type item struct {
	resource schema.GroupVersionResource
	key      string
}

// New checks the options and does not start the controller.
func New(o Options) (*Controller, error) {
	switch {
	case o.Name == "":
		return nil, errors.New("an initializer needs a name")
	case o.Config == nil:
		return nil, errors.New("an initializer needs a server's configuration")
	case len(o.Resources) == 0:
		return nil, fmt.Errorf("initializer %q has no resources", o.Name)
	case o.Initialize == nil:
		return nil, fmt.Errorf("initializer %q has no function", o.Name)
	case (o.Finalizer == "") != (o.Release == nil):
		return nil, fmt.Errorf("initializer %q needs both a finalizer and a function that releases, or neither", o.Name)
	}
	o.Workers = cmp.Or(o.Workers, 4)
	o.FirstRetry = cmp.Or(o.FirstRetry, 50*time.Millisecond)
	o.LastRetry = cmp.Or(o.LastRetry, 5*time.Second)
	config := rest.CopyConfig(o.Config)
	if config.QPS == 0 {
		config.QPS = -1
	}
	plain, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	including := rest.CopyConfig(config)
	including.Wrap(IncludeUninitialized)
	all, err := dynamic.NewForConfig(including)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		options: o, plain: plain,
		stores: map[schema.GroupVersionResource]cache.SharedIndexInformer{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[item](o.FirstRetry, o.LastRetry)),
	}
	if o.Parallel {
		c.parallel = &parallels{changed: c.lookAtAll}
	}
	for _, resource := range o.Resources {
		informer := dynamicinformer.NewFilteredDynamicInformer(all, resource, o.Namespace, 0, cache.Indexers{}, nil).Informer()
		if err := c.observe(informer, resource); err != nil {
			return nil, err
		}
		c.stores[resource] = informer
	}
	return c, nil
}

// Run initializes objects until ctx ends, then returns nil once the calls of the function have returned. It
// returns an error with the name of the resource if a resource cannot be watched.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.parallel != nil {
		if err := c.parallel.run(ctx, &group, c.plain); err != nil {
			return ended(ctx, err)
		}
	}
	var synced []cache.InformerSynced
	for _, informer := range c.stores {
		synced = append(synced, informer.HasSynced)
		group.Go(func() { informer.Run(ctx.Done()) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	for range c.options.Workers {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	return nil
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// observe makes an informer feed the queue.
func (c *Controller) observe(informer cache.SharedIndexInformer, resource schema.GroupVersionResource) error {
	// Of objects that need no action, only the name is kept.
	if err := informer.SetTransform(func(obj any) (any, error) {
		if u, ok := obj.(*unstructured.Unstructured); ok && position(u, c.options.Name) < 0 && !c.releases(u) {
			return nameOf(u), nil
		}
		return obj, nil
	}); err != nil {
		return err
	}
	enqueue := func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok && (c.turn(u) || c.releases(u)) {
			c.queue.Add(item{resource, keyOf(u)})
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	return err
}

// lookAtAll queues every object on which it is the initializer's turn, since these may be more
// than before.
func (c *Controller) lookAtAll() {
	for resource, informer := range c.stores {
		for _, obj := range informer.GetStore().List() {
			if u, ok := obj.(*unstructured.Unstructured); ok && c.turn(u) {
				c.queue.Add(item{resource, keyOf(u)})
			}
		}
	}
}

// releases reports whether the object waits for the initializer to release it.
func (c *Controller) releases(u *unstructured.Unstructured) bool {
	return c.options.Release != nil && u.GetDeletionTimestamp() != nil && slices.Contains(u.GetFinalizers(), c.options.Finalizer)
}

// turn reports whether it is the initializer's turn. An object that is being deleted is not
// initialized any more.
func (c *Controller) turn(u *unstructured.Unstructured) bool {
	if u.GetDeletionTimestamp() != nil {
		return false
	}
	at := position(u, c.options.Name)
	if at <= 0 || c.parallel == nil {
		return at == 0
	}
	names := pendingOf(u)
	for _, name := range names[:at+1] {
		if !c.parallel.has(name) {
			return false
		}
	}
	return true
}

func (c *Controller) next(ctx context.Context) bool {
	i, stop := c.queue.Get()
	if stop {
		return false
	}
	defer c.queue.Done(i)
	err := c.initialize(ctx, i)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		c.queue.Forget(i)
	default:
		if !apierrors.IsConflict(err) {
			klog.ErrorS(err, "Initializing", "initializer", c.options.Name, "resource", i.resource.GroupResource(), "object", i.key)
		}
		c.queue.AddRateLimited(i)
	}
	return true
}

// initialize acts on an object if it is still the initializer's turn.
func (c *Controller) initialize(ctx context.Context, i item) error {
	obj, exists, err := c.stores[i.resource].GetStore().GetByKey(i.key)
	if err != nil || !exists {
		return err
	}
	stored := obj.(*unstructured.Unstructured)
	if c.releases(stored) {
		return c.release(ctx, i.resource, stored)
	}
	if !c.turn(stored) {
		return nil
	}
	if c.options.Release != nil {
		if stored, err = c.claim(ctx, i.resource, stored); err != nil || stored == nil {
			return err
		}
	}
	next := stored.DeepCopy()
	err = c.options.Initialize(ctx, next)
	var failed *Failure
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	if failed != nil {
		next = stored.DeepCopy()
	}
	patch, err := patchOf(stored, next, c.options.Name, failed)
	if err != nil {
		return err
	}
	_, err = c.plain.Resource(i.resource).Namespace(stored.GetNamespace()).Patch(
		ctx, stored.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: c.options.Name})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// claim records in the object that the initializer begins to act. The server then keeps the object until the
// initializer has released its allocations. claim returns the object with the claim, nil if the object is gone.
// A claim that exists is written again: if the informer is late and the initializer has acted already, this
// write fails with a conflict.
func (c *Controller) claim(ctx context.Context, resource schema.GroupVersionResource, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	pairs, _, err := claimOf(stored, c.options.Name, c.options.Finalizer)
	if err != nil {
		return nil, err
	}
	next, err := c.patch(ctx, resource, stored, map[string]any{"initializers": map[string]any{"paired": pairs}})
	if next == nil || err != nil {
		return nil, err
	}
	var claimed bool
	if _, claimed, err = claimOf(next, c.options.Name, c.options.Finalizer); err == nil && !claimed {
		err = fmt.Errorf("the server did not store the claim on %q: it has initializers, and no finalizers of initializers", stored.GetName())
	}
	return next, err
}

// release releases an object and removes the finalizer.
func (c *Controller) release(ctx context.Context, resource schema.GroupVersionResource, stored *unstructured.Unstructured) error {
	if err := c.options.Release(ctx, stored.DeepCopy()); err != nil {
		return fmt.Errorf("releasing: %w", err)
	}
	left := slices.DeleteFunc(stored.GetFinalizers(), func(f string) bool { return f == c.options.Finalizer })
	_, err := c.patch(ctx, resource, stored, map[string]any{"finalizers": left})
	return err
}

// patch changes the metadata of exactly the stored state. It returns nil if the object is
// gone.
func (c *Controller) patch(ctx context.Context, resource schema.GroupVersionResource, stored *unstructured.Unstructured, metadata map[string]any) (*unstructured.Unstructured, error) {
	metadata["resourceVersion"], metadata["uid"] = stored.GetResourceVersion(), stored.GetUID()
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	next, err := c.plain.Resource(resource).Namespace(stored.GetNamespace()).Patch(
		ctx, stored.GetName(), types.MergePatchType, data, metav1.PatchOptions{FieldManager: c.options.Name})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return next, nil
}

func keyOf(u *unstructured.Unstructured) string {
	return cache.ObjectName{Namespace: u.GetNamespace(), Name: u.GetName()}.String()
}
