package storage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
)

// lazy is a storage that is opened by the first call that needs it. Its watch cache, which
// costs far more, is opened by the first list or watch: a kind that is only written and got has
// no watch cache. A kind that has objects when it is first used gets a watch cache at once:
// when the cache is filled, the server finds work that an earlier server left undone with these
// objects.
type lazy struct {
	versioner apistorage.Versioner
	// open opens the storage, and cache a watch cache in front of it.
	open  func() (*direct, error)
	cache func(*direct) (*opened, error)
	// written is called after each write.
	written func(ctx context.Context, key string, obj runtime.Object, operation Operation, err error)
	// lines are the lines of the updates of each object.
	lines *inflight.Lines
	// instead may provide the object of a get; nil for none.
	instead func(ctx context.Context, key string, into runtime.Object) (bool, error)
	// filled is set once the watch cache has been ready.
	filled atomic.Bool

	mu struct {
		sync.Mutex
		// direct is the storage without a watch cache; opened is the storage with a watch cache,
		// nil until the cache is opened.
		direct *direct
		opened *opened
		closed bool
	}
}

// direct is the storage of a resource in etcd.
type direct struct {
	apistorage.Interface
	close func()
	// cached is called when the storage gets a watch cache.
	cached func()
	// empty reports whether there was no object when it was opened.
	empty bool
}

var errClosed = errors.New("storage is closed: the server is shutting down")

// opened is the storage of a resource in use.
type opened struct {
	apistorage.Interface
	// raw is the storage without its watch cache.
	raw     apistorage.Interface
	filling *filling
	destroy func()
	// past bounds the watches that begin before the cache.
	past *past
	// cacher is the watch cache; nil when there is none.
	cacher *cacher.Cacher
	// snapshots are the snapshots of the watch cache.
	snapshots *snapshots
}

// get opens the storage with its watch cache.
func (l *lazy) get() (*opened, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.getLocked()
}

// getLocked implements get; mu is held.
func (l *lazy) getLocked() (*opened, error) {
	if _, err := l.openLocked(); err != nil {
		return nil, err
	}
	if l.mu.opened == nil {
		o, err := l.cache(l.mu.direct)
		if err != nil {
			return nil, apistorage.NewInternalError(err)
		}
		l.mu.opened = o
	}
	return l.mu.opened, nil
}

// forOne opens the storage for calls about one object, which need no watch cache. If there is one,
// they use it.
func (l *lazy) forOne() (apistorage.Interface, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, err := l.openLocked()
	switch {
	case err != nil:
		return nil, err
	case l.mu.opened == nil && d.empty:
		return d, nil
	}
	return l.getLocked()
}

// withoutCache returns a storage without its watch cache.
func withoutCache(s apistorage.Interface) apistorage.Interface {
	if o, ok := s.(*opened); ok {
		return o.raw
	}
	return s
}

// openLocked opens the storage without a watch cache; mu is held.
func (l *lazy) openLocked() (*direct, error) {
	if l.mu.closed {
		return nil, apistorage.NewInternalError(errClosed)
	}
	if l.mu.direct == nil {
		d, err := l.open()
		if err != nil {
			return nil, apistorage.NewInternalError(err)
		}
		l.mu.direct = d
	}
	return l.mu.direct, nil
}

// cached calls a read that may need the watch cache. While the cache is being filled, it
// answers reads that it cannot serve yet with 429, as the caches of kube-apiserver do. But
// kube-apiserver fills most of its caches before it begins to serve, and here the first use of
// a resource opens the cache. So a read that gets this 429 waits once until the cache is
// filled, and gives back its place meanwhile. When the cache could not be filled in time, reads
// do not wait any more.
func (l *lazy) cached(ctx context.Context, read func(*opened) error) error {
	o, err := l.get()
	if err != nil {
		return err
	}
	if l.filled.Load() {
		return read(o)
	}
	if o.ReadinessCheck() == nil {
		l.filled.Store(true)
		return read(o)
	}
	if err = read(o); !apierrors.IsTooManyRequests(err) {
		return err
	}
	if o.filling.wait(ctx, o) {
		return read(o)
	}
	if cause := o.filling.unreadable.Load(); cause != nil {
		// A retry does not help.
		return apistorage.NewInternalError(cause)
	}
	return err
}

// used returns the storage with its watch cache if a call has opened the cache already, else
// nil.
func (l *lazy) used() *opened {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.opened
}

func (l *lazy) close() {
	l.mu.Lock()
	o, d, closed := l.mu.opened, l.mu.direct, l.mu.closed
	// Callers that still have the store, such as a request that is kept, then do not keep the
	// cache in memory.
	l.mu.opened, l.mu.direct, l.mu.closed = nil, nil, true
	l.mu.Unlock()
	switch {
	case closed:
	case o != nil:
		o.destroy()
	case d != nil:
		d.close()
	}
}

func (l *lazy) Versioner() apistorage.Versioner { return l.versioner }

func (l *lazy) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	o, err := l.forOne()
	if err != nil {
		return err
	}
	err = o.Create(ctx, key, obj, out, ttl)
	l.written(ctx, key, out, Created, err)
	return explainWrite(ctx, err)
}

func (l *lazy) Delete(ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, cached runtime.Object, opts apistorage.DeleteOptions,
) error {
	o, err := l.forOne()
	if err != nil {
		return err
	}
	err = o.Delete(ctx, key, out, preconditions, validate, cached, opts)
	l.written(ctx, key, out, Deleted, err)
	return explainWrite(ctx, err)
}

// Watch begins a watch in the watch cache, or in etcd if the version is older than the watch cache.
func (l *lazy) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (w watch.Interface, err error) {
	err = l.cached(ctx, func(o *opened) (err error) {
		if w, err = o.Watch(ctx, key, opts); err == nil {
			w, err = o.past.watch(ctx, o.raw, key, opts, w)
		}
		return err
	})
	return w, err
}

func (l *lazy) Get(ctx context.Context, key string, opts apistorage.GetOptions, obj runtime.Object) error {
	if l.instead != nil {
		if found, err := l.instead(ctx, key, obj); err != nil || found {
			return err
		}
	}
	o, err := l.forOne()
	if err != nil {
		return err
	}
	return explainRead(ctx, o.Get(ctx, key, opts, obj))
}

func (l *lazy) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	err := l.cached(ctx, func(o *opened) error {
		if err := o.turn(ctx, key, opts, list); err != nil {
			return err
		}
		if o.cacher != nil {
			o.snapshots.list(opts)
		}
		return o.GetList(ctx, key, opts, list)
	})
	return explainRead(ctx, err)
}

func (l *lazy) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, tryUpdate apistorage.UpdateFunc, cached runtime.Object,
) error {
	o, err := l.forOne()
	if err != nil {
		return err
	}
	turn, err := l.lines.Enter(ctx, key)
	if err != nil {
		return err
	}
	defer turn.End()
	if last := turn.Last(); last != nil {
		// The watch cache would suggest its own object, which is older.
		o, cached = withoutCache(o), last
	}
	err = o.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
	if err == nil {
		turn.Leave(destination)
	}
	l.written(ctx, key, destination, Updated, err)
	return explainWrite(ctx, err)
}

func (l *lazy) Stats(ctx context.Context) (apistorage.Stats, error) {
	o, err := l.get()
	if err != nil {
		return apistorage.Stats{}, err
	}
	return o.Stats(ctx)
}

// ReadinessCheck returns nil for a storage whose cache was never opened: there is no cache to
// wait for.
func (l *lazy) ReadinessCheck() error {
	if o := l.used(); o != nil {
		return o.ReadinessCheck()
	}
	return nil
}

func (l *lazy) RequestWatchProgress(ctx context.Context) error {
	o, err := l.get()
	if err != nil {
		return err
	}
	return o.RequestWatchProgress(ctx)
}

func (l *lazy) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	o, err := l.get()
	if err != nil {
		return 0, err
	}
	return o.GetCurrentResourceVersion(ctx)
}

func (l *lazy) EnableResourceSizeEstimation(keys apistorage.KeysFunc) error {
	o, err := l.get()
	if err != nil {
		return err
	}
	return o.EnableResourceSizeEstimation(keys)
}

func (l *lazy) CompactRevision() int64 {
	if o := l.used(); o != nil {
		return o.CompactRevision()
	}
	return 0
}

// fillingTimeout is how long after the opening of a watch cache reads wait for it, if they have the
// time: on an overloaded machine, a cache with many objects takes seconds.
const fillingTimeout = time.Minute

// filling is the first filling of a watch cache.
type filling struct {
	// failed ends when the cache could not be filled, or not in time.
	failed context.Context
	fail   context.CancelFunc
	// unreadable is the error about a value that the last attempt could not decrypt.
	unreadable atomic.Pointer[encryption.Unreadable]
}

func newFilling(timeout time.Duration) *filling {
	f := &filling{}
	f.failed, f.fail = context.WithTimeout(context.Background(), timeout)
	return f
}

// wait waits until the cache is ready, and reports whether it is. It waits until fillingTimeout
// at most, and not at all when the request cannot give back its place.
func (f *filling) wait(ctx context.Context, cache interface{ ReadinessCheck() error }) bool {
	if f.failed.Err() == nil {
		inflight.Aside(ctx, func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for cache.ReadinessCheck() != nil {
				select {
				case <-tick.C:
				case <-f.failed.Done():
					return
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return cache.ReadinessCheck() == nil
}

// filler is the storage from which a watch cache is filled, by a list.
type filler struct {
	apistorage.Interface
	*filling
	values *encryption.Transformer
}

func (f filler) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	f.values.Unreadable()
	err := f.Interface.GetList(ctx, key, opts, list)
	f.unreadable.Store(f.values.Unreadable())
	if err != nil {
		f.fail()
	}
	return err
}
