package caches

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage"
)

// Caches are the caches that admission plugins and RBAC read. They are safe for concurrent use.
type Caches struct {
	resources []schema.GroupVersionResource
	factory   informers.SharedInformerFactory
	// awaited are the caches that writes wait for; nil before Await.
	awaited atomic.Pointer[map[schema.GroupResource]cache.SharedIndexInformer]
}

// New returns the caches of a factory that plugins and RBAC read, given the names of the admission
// plugins that run, and whether RBAC authorizes requests.
func New(factory informers.SharedInformerFactory, running []string, rbac bool) *Caches {
	return &Caches{resources: read(running, rbac), factory: factory}
}

// notAwaited are resources that admission reads and whose writes are answered at once, because
// there are very many such writes.
var notAwaited = []string{"persistentvolumeclaims", "persistentvolumes"}

// readLive are resources whose new objects are read from the storage until the cache has them.
var readLive = []schema.GroupResource{{Resource: "namespaces"}, {Resource: "serviceaccounts"}}

// Await makes writes wait for the caches from now on. It is called after the start of the server:
// during the start no client could see a difference, and the waits would make the start longer.
func (c *Caches) Await() error {
	all := map[schema.GroupResource]cache.SharedIndexInformer{}
	for _, gvr := range c.resources {
		if slices.Contains(notAwaited, gvr.Resource) {
			continue
		}
		informer, err := c.factory.ForResource(gvr)
		if err != nil {
			return err
		}
		all[gvr.GroupResource()] = informer.Informer()
	}
	c.awaited.Store(&all)
	return nil
}

// Written is called with each write, before the write is answered, and returns when the caches have
// the write: the next request is evaluated against it (S20.8).
func (c *Caches) Written(ctx context.Context, w storage.Write) {
	if all := c.awaited.Load(); all != nil && w.Object != nil {
		if informer := (*all)[w.Resource]; informer != nil {
			awaitCache(ctx, informer, w)
		}
	}
}

const (
	// cacheWait bounds how long a write waits for a cache, and cacheInterval is how often the write
	// checks the cache. A watch that breaks begins again a second later.
	cacheWait     = time.Second
	cacheInterval = 500 * time.Microsecond
)

// awaitCache returns when a cache has a write.
func awaitCache(ctx context.Context, informer cache.SharedIndexInformer, w storage.Write) {
	stored, err := meta.Accessor(w.Object)
	if err != nil || w.Operation != storage.Deleted && !isShown(ctx, w) || !informer.HasSynced() {
		return
	}
	seen := func(context.Context) (bool, error) {
		found, current := inCache(informer.GetStore(), stored)
		return current || !found && w.Operation == storage.Deleted, nil
	}
	if there, _ := seen(ctx); there {
		return
	}
	defer inflight.StepAside(ctx)()
	_ = wait.PollUntilContextTimeout(ctx, cacheInterval, cacheWait, true, seen)
}

// isShown reports whether the cache will have the object that was written, and whether the object
// might change how a request is decided.
func isShown(ctx context.Context, w storage.Write) bool {
	if initializers.Has(w.Object) {
		return false
	}
	if info, ok := request.RequestInfoFrom(ctx); ok && info.Subresource == "status" {
		return false
	}
	return w.Operation != storage.Created || !slices.Contains(readLive, w.Resource)
}
