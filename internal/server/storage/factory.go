package storage

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagefactory "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// Factory makes the storage of every resource. It is a generic.RESTOptionsGetter, through which
// upstream's registries get their storage, and safe for concurrent use.
type Factory struct {
	configs serverstorage.StorageFactory
	client  *kubernetes.Client
	// compactor compacts etcd; nil when Compact was not called.
	compactor interface {
		etcd3.Compactor
		Stop()
	}
	uncached  map[schema.GroupResource]bool
	decorator Decorator
	past      past
	// written is called with every write; nil when OnWrite was not called.
	written func(context.Context, Write)
	// lines serializes the updates of each object.
	lines inflight.Lines
	// writes are the writes whose objects the watch caches take.
	writes *writes
	// instead is called before a get of a stored object; nil for none.
	instead Instead
	// values transforms objects on their way to etcd and back; nil when Encrypt was not called.
	values *encryption.Transformers
	// filling is how long reads wait for a watch cache: fillingTimeout, except in tests.
	filling time.Duration

	mu struct {
		sync.Mutex
		// closed makes stores that were never used refuse to open.
		closed bool
		// stores holds every store that has not been destroyed.
		stores map[*lazy]struct{}
	}
}

// Decorator changes the behavior of stores.
type Decorator interface {
	// Attributes may add fields of objects that field selectors can use.
	Attributes(schema.GroupResource, apistorage.AttrFunc) apistorage.AttrFunc
	// Store returns the store to use: inner, or a store in front of it. root is the
	// prefix of the resource's keys. The result must not call inner after inner was
	// closed.
	Store(resource schema.GroupResource, root string, newObject func() runtime.Object, inner apistorage.Interface) apistorage.Interface
}

// NewFactory returns a Factory over an etcd client, which it does not close. configs has the prefix
// and the version in which each resource is stored; decorator, which may be nil, changes the
// stores; the resources in uncached get no watch cache.
func NewFactory(configs serverstorage.StorageFactory, client *kubernetes.Client, decorator Decorator, uncached ...schema.GroupResource) *Factory {
	f := &Factory{
		configs:   configs,
		client:    client,
		uncached:  map[schema.GroupResource]bool{},
		writes:    newWrites(),
		decorator: decorator,
		filling:   fillingTimeout,
	}
	for _, gr := range uncached {
		f.uncached[gr] = true
	}
	// A store checks this feature with its own client, which has no endpoints (see watching):
	// the check here sets the result. Without the feature no cache catches up with etcd before
	// the next write.
	etcdfeature.DefaultFeatureSupportChecker.CheckClient(client.Ctx(), client, apistorage.RequestWatchProgress)
	return f
}

// Write is a write that was done, or may have been done.
type Write struct {
	Resource schema.GroupResource
	// Place is the beginning of the keys of the resource, before a slash, and Key the key that was
	// written. Both are in the form of stores, without the prefix of all keys.
	Place, Key string
	// Object is the object that was stored or deleted, with the revision of the write; nil when
	// the write failed.
	Object    runtime.Object
	Operation Operation
}

// Operation is the kind of a write.
type Operation uint8

// The operations.
const (
	Created Operation = iota
	Updated
	Deleted
)

// OnWrite makes stores call written after each write, with the context of the request, before
// that request is answered. OnWrite is called once, before the stores are used.
func (f *Factory) OnWrite(written func(context.Context, Write)) { f.written = written }

// Compact compacts etcd at an interval until Close. Watches that resume from a compacted revision
// get 410 Gone. Compact is called once, before the stores are used.
func (f *Factory) Compact(interval time.Duration) {
	f.compactor = etcd3.NewCompactor(f.client.Client, interval, clock.RealClock{}, func() {})
}

// Encrypt makes stores encrypt the objects that they write. Encrypt is called once, before the
// stores are used.
func (f *Factory) Encrypt(values *encryption.Transformers) { f.values = values }

// Instead may provide an object in place of the stored one of a request: it then decodes that
// object into the argument into, and returns true. name is the rest of the key after the place of
// the resource.
type Instead func(ctx context.Context, resource schema.GroupResource, name string, codec runtime.Codec, into runtime.Object) (bool, error)

// Instead makes gets of single objects call instead first. Instead is called once, before the
// stores are used.
func (f *Factory) Instead(instead Instead) { f.instead = instead }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (f *Factory) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	config, err := f.configs.NewConfig(resource, example)
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("storage of %s: %w", resource, err)
	}
	return f.For(config, f.configs.ResourcePrefix(resource)), nil
}

// For returns options for a resource whose configuration is not in the storage
// factory's scheme: custom resources.
func (f *Factory) For(config *storagebackend.ConfigForResource, prefix string) generic.RESTOptions {
	return generic.RESTOptions{
		StorageConfig:           config,
		Decorator:               f.decorate,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          prefix,
	}
}

// Close closes every store that was opened and stops the compactor. All requests
// must have ended.
func (f *Factory) Close() {
	f.mu.Lock()
	stores := f.mu.stores
	f.mu.stores, f.mu.closed = nil, true
	f.mu.Unlock()
	for l := range stores {
		l.close()
	}
	if f.compactor != nil {
		f.compactor.Stop()
	}
}

// watching returns the client with a watch stream of its own, and a function that closes the
// stream. etcd reports the progress of a stream only when all its watches have begun, and a
// watch that was opened from the next revision on begins with the next write. On a common
// stream such a watch would make consistent lists of all other resources wait for that write.
func (f *Factory) watching() (client *kubernetes.Client, closeWatcher func()) {
	shared := f.client.Client
	own := clientv3.NewCtxClient(shared.Ctx())
	own.Cluster, own.KV, own.Lease, own.Auth, own.Maintenance = shared.Cluster, shared.KV, shared.Lease, shared.Auth, shared.Maintenance
	own.Watcher = etcd.NewWatcher(shared)
	return &kubernetes.Client{Client: own, Kubernetes: f.client.Kubernetes}, func() { own.Watcher.Close() }
}

// countTimeout bounds the count of the objects of a resource that is used for the first time.
const countTimeout = 2 * time.Second

// empty reports whether etcd has no key below a prefix; false if the check fails.
func (f *Factory) empty(prefix string) bool {
	ctx, cancel := context.WithTimeout(f.client.Ctx(), countTimeout)
	defer cancel()
	n, err := f.client.Kubernetes.Count(ctx, prefix, kubernetes.CountOptions{})
	return err == nil && n == 0
}

func (f *Factory) decorate(
	config *storagebackend.ConfigForResource,
	resourcePrefix string,
	keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object,
	getAttrs apistorage.AttrFunc,
	trigger apistorage.IndexerFuncs,
	indexers *cache.Indexers,
) (apistorage.Interface, storagefactory.DestroyFunc, error) {
	if f.decorator != nil {
		getAttrs = f.decorator.Attributes(config.GroupResource, getAttrs)
	}
	l := &lazy{versioner: apistorage.APIObjectVersioner{}, lines: &f.lines, written: func(ctx context.Context, key string, obj runtime.Object, operation Operation, err error) {
		if f.written == nil {
			return
		}
		if err != nil {
			obj = nil
		}
		f.written(ctx, Write{Resource: config.GroupResource, Place: resourcePrefix, Key: key, Object: obj, Operation: operation})
	}}
	if f.instead != nil {
		l.instead = func(ctx context.Context, key string, into runtime.Object) (bool, error) {
			name, ok := strings.CutPrefix(key, resourcePrefix+"/")
			if !ok {
				return false, nil
			}
			return f.instead(ctx, config.GroupResource, name, config.Codec, into)
		}
	}
	values := f.values.For(config.GroupResource)
	l.open = func() (*direct, error) {
		f.mu.Lock()
		closed := f.mu.closed
		f.mu.Unlock()
		if closed {
			return nil, fmt.Errorf("storage of %s: the server is shutting down", config.GroupResource)
		}
		client, closeWatcher := f.watching()
		unsafe := utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion)
		var transformer value.Transformer = values
		passed := &handover{codec: config.Codec, versioner: l.versioner, writes: f.writes}
		decoder := etcd3.NewDefaultDecoder(config.Codec, l.versioner)
		if unsafe {
			transformer = etcd3.WithCorruptObjErrorHandlingTransformer(transformer)
			decoder = retriable{etcd3.WithCorruptObjErrorHandlingDecoder(decoder)}
		}
		passed.decoder = decoder
		store, err := etcd3.New(client, f.compactor, handoverCodec{passed}, newFunc, newListFunc, config.Prefix, resourcePrefix,
			config.GroupResource, transformer, config.LeaseManagerConfig, handoverDecoder{passed}, l.versioner)
		if err != nil {
			closeWatcher()
			return nil, fmt.Errorf("storage of %s: %w", config.GroupResource, err)
		}
		closeRaw := func() {
			store.Close()
			closeWatcher()
			f.writes.forget(passed)
		}
		var raw apistorage.Interface = store
		if unsafe {
			raw = etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, config.GroupResource)
		}
		return &direct{Interface: raw, close: closeRaw, cached: func() { passed.on.Store(true) }, empty: f.empty(path.Join("/", config.Prefix, resourcePrefix) + "/")}, nil
	}
	l.cache = func(d *direct) (*opened, error) {
		raw := d.Interface
		if f.uncached[config.GroupResource] {
			return &opened{Interface: raw, raw: raw, filling: newFilling(f.filling), past: &f.past, destroy: d.close}, nil
		}
		filling, snapshots := newFilling(f.filling), newSnapshots(time.Now)
		c, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage:             filler{raw, filling, values},
			Versioner:           l.versioner,
			GroupResource:       config.GroupResource,
			EventsHistoryWindow: config.EventsHistoryWindow,
			ResourcePrefix:      resourcePrefix,
			KeyFunc:             keyFunc,
			NewFunc:             newFunc,
			NewListFunc:         newListFunc,
			GetAttrsFunc:        snapshots.attributes(getAttrs),
			IndexerFuncs:        trigger,
			Indexers:            indexers,
			Codec:               config.Codec,
			Clock:               clock.RealClock{},
		})
		if err != nil {
			filling.fail()
			return nil, fmt.Errorf("watch cache of %s: %w", config.GroupResource, err)
		}
		snapshots.of(c)
		d.cached()
		delegator := cacher.NewCacheDelegator(c, raw)
		return &opened{Interface: delegator, raw: raw, cacher: c, filling: filling, snapshots: snapshots, past: &f.past, destroy: func() {
			filling.fail()
			delegator.Stop()
			c.Stop()
			d.close()
		}}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.stores == nil {
		f.mu.stores = map[*lazy]struct{}{}
	}
	f.mu.stores[l] = struct{}{}
	var store apistorage.Interface = l
	if f.decorator != nil {
		store = f.decorator.Store(config.GroupResource, resourcePrefix, newFunc, l)
	}
	return store, func() {
		l.close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.mu.stores, l)
	}, nil
}
