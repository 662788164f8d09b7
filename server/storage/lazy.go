package storage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// lazy is a storage that is opened by the first call that needs it.
type lazy struct {
	versioner apistorage.Versioner
	open      func() (apistorage.Interface, func(), error)
	// filled is set once the watch cache has been ready.
	filled atomic.Bool

	mu struct {
		sync.Mutex
		storage apistorage.Interface
		destroy func()
		closed  bool
	}
}

var _ apistorage.Interface = (*lazy)(nil)

var errClosed = errors.New("storage is closed: the server is shutting down")

func (l *lazy) get() (apistorage.Interface, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil, apistorage.NewInternalError(errClosed)
	}
	if l.mu.storage == nil {
		storage, destroy, err := l.open()
		if err != nil {
			return nil, apistorage.NewInternalError(err)
		}
		l.mu.storage, l.mu.destroy = storage, destroy
	}
	return l.mu.storage, nil
}

// readyTimeout is how long a read waits for the watch cache of a resource that
// is used for the first time.
const readyTimeout = 5 * time.Second

// getReady is get for reads, which a watch cache that is still being filled
// would turn away.
func (l *lazy) getReady(ctx context.Context) (apistorage.Interface, error) {
	s, err := l.get()
	if err != nil || l.filled.Load() {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for s.ReadinessCheck() != nil {
		select {
		case <-ctx.Done():
			// The cache itself answers 429 now.
			return s, nil
		case <-time.After(time.Millisecond):
		}
	}
	l.filled.Store(true)
	return s, nil
}

// opened returns the storage if some call has opened it already, else nil.
func (l *lazy) opened() apistorage.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.storage
}

func (l *lazy) close() {
	l.mu.Lock()
	destroy := l.mu.destroy
	l.mu.destroy, l.mu.closed = nil, true
	l.mu.Unlock()
	if destroy != nil {
		destroy()
	}
}

func (l *lazy) Versioner() apistorage.Versioner { return l.versioner }

func (l *lazy) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	s, err := l.get()
	if err != nil {
		return err
	}
	return explainWrite(ctx, s.Create(ctx, key, obj, out, ttl))
}

func (l *lazy) Delete(ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, cached runtime.Object, opts apistorage.DeleteOptions,
) error {
	s, err := l.get()
	if err != nil {
		return err
	}
	return explainWrite(ctx, s.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

func (l *lazy) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	s, err := l.getReady(ctx)
	if err != nil {
		return nil, err
	}
	return s.Watch(ctx, key, opts)
}

func (l *lazy) Get(ctx context.Context, key string, opts apistorage.GetOptions, obj runtime.Object) error {
	s, err := l.getReady(ctx)
	if err != nil {
		return err
	}
	return explainRead(ctx, s.Get(ctx, key, opts, obj))
}

func (l *lazy) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	s, err := l.getReady(ctx)
	if err != nil {
		return err
	}
	return explainRead(ctx, s.GetList(ctx, key, opts, list))
}

func (l *lazy) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, tryUpdate apistorage.UpdateFunc, cached runtime.Object,
) error {
	s, err := l.get()
	if err != nil {
		return err
	}
	return explainWrite(ctx, s.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached))
}

func (l *lazy) Stats(ctx context.Context) (apistorage.Stats, error) {
	s, err := l.get()
	if err != nil {
		return apistorage.Stats{}, err
	}
	return s.Stats(ctx)
}

// ReadinessCheck is nil for a storage that nobody has used: there is nothing in
// it to wait for.
func (l *lazy) ReadinessCheck() error {
	if s := l.opened(); s != nil {
		return s.ReadinessCheck()
	}
	return nil
}

func (l *lazy) RequestWatchProgress(ctx context.Context) error {
	s, err := l.getReady(ctx)
	if err != nil {
		return err
	}
	return s.RequestWatchProgress(ctx)
}

func (l *lazy) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	s, err := l.getReady(ctx)
	if err != nil {
		return 0, err
	}
	return s.GetCurrentResourceVersion(ctx)
}

func (l *lazy) EnableResourceSizeEstimation(keys apistorage.KeysFunc) error {
	s, err := l.get()
	if err != nil {
		return err
	}
	return s.EnableResourceSizeEstimation(keys)
}

func (l *lazy) CompactRevision() int64 {
	if s := l.opened(); s != nil {
		return s.CompactRevision()
	}
	return 0
}
