package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lateinformer"
)

const (
	// lingering is how long a kind is followed after its last controller has stopped following it:
	// the events of its last objects may still arrive, and a CRD may be made anew.
	lingering = 10 * time.Second
	// patience is how long controllers that follow all kinds wait for a kind of another server.
	patience = 5 * time.Second
	// idle is how long a kind that got a handler is kept when no controller runs with it.
	idle = time.Minute
)

// followed are the informers of the metadata of objects of any kind. Kinds are added and removed;
// an informer lives as long as a controller follows its kind. (The factories of client-go keep an
// informer for ever.)
type followed struct {
	ctx    context.Context
	client metadata.Interface
	// remote reports whether other servers have a resource.
	remote func(schema.GroupResource) bool
	// linger is how long an informer outlives its last user.
	linger time.Duration

	mu      sync.Mutex
	kinds   map[schema.GroupVersionResource]*followedKind
	running sync.WaitGroup
}

// followedKind is the informer of one kind.
type followedKind struct {
	informers.GenericInformer
	// users counts the controllers that run with the kind; made is when the kind got its first
	// handler. When the garbage collector adds kinds and one of them has been removed, it fails,
	// and never runs with the kinds to which it has added handlers already.
	users int
	made  time.Time
	// stop ends the informer; it is nil before the informer is started. since is when the
	// informer was started, and ended reports whether it was stopped.
	stop  context.CancelFunc
	since atomic.Pointer[time.Time]
	ended bool
	// failed reports whether a read of the kind has failed.
	failed atomic.Bool
}

// newFollowed returns informers that run until ctx ends at the latest.
func newFollowed(ctx context.Context, client metadata.Interface, remote func(schema.GroupResource) bool) *followed {
	return &followed{ctx: ctx, client: client, remote: remote, linger: lingering, kinds: map[schema.GroupVersionResource]*followedKind{}}
}

// ForResource returns the informer of a kind for one controller, which may add one handler.
func (f *followed) ForResource(resource schema.GroupVersionResource) informers.GenericInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := f.kinds[resource]
	if kind == nil {
		// The kind is shared when it gets a handler.
		kind = f.newKind(resource)
	}
	return &follower{GenericInformer: kind.GenericInformer, all: f, resource: resource, kind: kind}
}

func (f *followed) newKind(resource schema.GroupVersionResource) *followedKind {
	kind := &followedKind{GenericInformer: metadatainformer.NewFilteredMetadataInformer(
		f.client, resource, metav1.NamespaceAll, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil)}
	informer := kind.Informer()
	// Both fail only for an informer that runs already, and this one does not.
	_ = informer.SetTransform(bare)
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		kind.failed.Store(true)
		if errors.As(err, new(apierrors.APIStatus)) {
			// The handler logs the error, and a status does not name the resource.
			err = fmt.Errorf("%s: %w", resource.GroupResource(), err)
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	return kind
}

// run starts the informer of a kind for its first user. The lock is held.
func (f *followed) run(kind *followedKind) {
	kind.users++
	if kind.stop != nil || f.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(f.ctx)
	kind.stop = stop
	now := time.Now()
	kind.since.Store(&now)
	f.running.Go(func() { kind.Informer().RunWithContext(ctx) })
}

// forget drops kinds that have handlers and that no running controller uses. The lock is held.
func (f *followed) forget() {
	for resource, kind := range f.kinds {
		if kind.users == 0 && kind.stop == nil && time.Since(kind.made) > idle {
			delete(f.kinds, resource)
		}
	}
}

// Shutdown stops all informers, and waits until they have ended.
func (f *followed) Shutdown() {
	f.mu.Lock()
	for resource, kind := range f.kinds {
		if kind.stop != nil {
			kind.stop()
		}
		delete(f.kinds, resource)
	}
	f.mu.Unlock()
	f.running.Wait()
}

// follower is the informer of a kind for one controller.
type follower struct {
	informers.GenericInformer
	all      *followed
	resource schema.GroupVersionResource
	// kind is the followed kind. handler is the registration of the controller's handler there; nil
	// before there is one. runs is set while the controller runs.
	kind    *followedKind
	handler cache.ResourceEventHandlerRegistration
	runs    bool
}

// Informer implements informers.GenericInformer.
func (u *follower) Informer() cache.SharedIndexInformer {
	return followerInformer{u.kind.Informer(), u}
}

// use adds a handler, and shares the informer of the kind with its other users.
func (u *follower) use(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	f := u.all
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	if current := f.kinds[u.resource]; current != nil {
		u.kind, u.GenericInformer = current, current.GenericInformer
	} else {
		if u.kind.ended {
			// The last user of the informer has stopped it since this user got the informer.
			u.kind = f.newKind(u.resource)
			u.GenericInformer = u.kind.GenericInformer
		}
		u.kind.made = time.Now()
		f.kinds[u.resource] = u.kind
	}
	handler, err := lateinformer.Registration(u.kind.Informer().AddEventHandlerWithOptions(h, o))
	if err == nil {
		u.handler = handler
	}
	return handler, err
}

// run follows the kind from now on.
func (u *follower) run() {
	f := u.all
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.handler == nil || u.runs || u.kind.ended {
		return
	}
	if f.kinds[u.resource] == nil {
		f.kinds[u.resource] = u.kind
	}
	u.runs = true
	f.run(u.kind)
}

// release removes the handler. The last user that releases the kind ends the informer.
func (u *follower) release() {
	f := u.all
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	if !u.runs {
		return
	}
	u.runs = false
	if err := u.kind.Informer().RemoveEventHandler(u.handler); err != nil {
		klog.V(1).InfoS("A handler stays with the informer of a kind that is gone", "resource", u.resource, "err", err)
	}
	u.handler = nil
	if u.kind.users--; u.kind.users > 0 {
		return
	}
	u.kind.ended = true
	if f.kinds[u.resource] == u.kind {
		delete(f.kinds, u.resource)
	}
	if u.kind.stop != nil {
		u.kind.stop()
	}
}

// synced reports whether the informer has the objects, or no controller should wait for them: a
// server that hangs or fails does not delay controllers that follow the kinds of all servers.
func (u *follower) synced() bool {
	if u.kind.Informer().HasSynced() {
		return true
	}
	since := u.kind.since.Load()
	return since != nil && u.all.remote(u.resource.GroupResource()) && (u.kind.failed.Load() || time.Since(*since) > patience)
}

// followerInformer is the informer of a follower.
type followerInformer struct {
	cache.SharedIndexInformer
	user *follower
}

// AddEventHandlerWithOptions implements cache.SharedInformer. A monitor adds the handlers of
// controllers that follow all kinds with it.
func (i followerInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.user.use(h, o)
}

// GetController implements cache.SharedInformer. The kind is followed until the controller is
// stopped.
func (i followerInformer) GetController() cache.Controller {
	return followerController{i.SharedIndexInformer.GetController(), i.user}
}

type followerController struct {
	cache.Controller
	user *follower
}

// Run implements cache.Controller.
func (c followerController) Run(stop <-chan struct{}) {
	c.user.run()
	<-stop
	sleep(c.user.all.ctx, c.user.all.linger)
	c.user.release()
}

// RunWithContext implements cache.Controller.
func (c followerController) RunWithContext(ctx context.Context) { c.Run(ctx.Done()) }

// HasSynced implements cache.Controller.
func (c followerController) HasSynced() bool { return c.user.synced() }
