package initialization

import (
	"context"
	"errors"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

const (
	// linger is the time that the watch of a resource continues without a followed object.
	linger = 5 * time.Second
	// pause is the wait of the watch after a failure.
	pause = 100 * time.Millisecond
)

// watch follows the resource while there are entries.
func (t *tracker) watch() {
	d := t.store.d
	for d.ctx.Err() == nil {
		t.mu.Lock()
		from := t.mu.seen
		t.mu.Unlock()
		err := t.run(from)
		if err == nil {
			return
		}
		if d.ctx.Err() != nil {
			return
		}
		klog.V(2).InfoS("Restarting the watch of uninitialized objects", "resource", t.store.resource, "reason", err)
		// The revision was compacted, or storage does not respond: check each object.
		t.checkAll()
		select {
		case <-d.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// run runs one watch until it ends. It returns nil if no entries are left, and the goroutine must then end.
func (t *tracker) run(from uint64) error {
	ctx, cancel := context.WithCancel(t.store.d.ctx)
	defer cancel()
	w, err := t.store.Interface.Watch(ctx, t.root+"/", apistorage.ListOptions{
		ResourceVersion: strconv.FormatUint(from, 10),
		Recursive:       true,
		Predicate: apistorage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.Everything(), GetAttrs: apistorage.DefaultClusterScopedAttr, AllowWatchBookmarks: true,
		},
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	idle := time.NewTicker(linger)
	defer idle.Stop()
	quiet := false
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return errors.New("the watch ended")
			}
			switch event.Type {
			case watch.Error:
				return apierrors.FromObject(event.Object)
			case watch.Deleted:
				t.deleted(event.Object)
			case watch.Added, watch.Modified:
				t.observe(event.Object)
			}
			t.advance(event.Object)
		case <-idle.C:
			t.mu.Lock()
			if len(t.mu.entries) == 0 && quiet {
				t.mu.watching = false
				t.mu.Unlock()
				return nil
			}
			quiet = len(t.mu.entries) == 0
			t.mu.Unlock()
		}
	}
}

// advance notes the revision that the watch has reached.
func (t *tracker) advance(obj runtime.Object) {
	version, err := t.store.Versioner().ObjectResourceVersion(obj)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.seen = max(t.mu.seen, version)
}

// observe records a state of an object.
func (t *tracker) observe(obj runtime.Object) {
	t.with(obj, func(e *entry, field *initializers.Initializers, err error) {
		if err != nil {
			t.end(e, nil, apierrors.NewInternalError(err))
			return
		}
		t.update(e, obj, field)
	})
}

// deleted records the last state of an object.
func (t *tracker) deleted(obj runtime.Object) {
	t.with(obj, func(e *entry, field *initializers.Initializers, err error) {
		if err == nil && field != nil && field.Result != nil {
			t.end(e, nil, t.store.rejection(field))
			return
		}
		t.end(e, nil, errDeleted())
	})
}

// with calls f with the entry of an object, if it is followed, and its field. The lock is held.
func (t *tracker) with(obj runtime.Object, f func(*entry, *initializers.Initializers, error)) {
	uid, err := uidOf(obj)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.mu.entries[uid]; ok {
		field, err := initializers.Get(obj)
		f(e, field, err)
	}
}

// checkAll checks every object that is followed. The watch continues from the version that storage had before
// the first check.
func (t *tracker) checkAll() {
	ctx := t.store.d.ctx
	current, err := t.store.Interface.GetCurrentResourceVersion(ctx)
	if err != nil {
		return
	}
	t.mu.Lock()
	t.mu.seen = current
	entries := make([]*entry, 0, len(t.mu.entries))
	for _, e := range t.mu.entries {
		entries = append(entries, e)
	}
	t.mu.Unlock()
	for _, e := range entries {
		t.check(ctx, e)
	}
}

// check reads an object and updates its entry.
func (t *tracker) check(ctx context.Context, e *entry) {
	obj := t.store.newObject()
	err := t.store.Interface.Get(ctx, e.key, apistorage.GetOptions{}, obj)
	if err != nil && !apistorage.IsNotFound(err) {
		return
	}
	if err == nil {
		if uid, err := uidOf(obj); err == nil && uid == e.uid {
			t.observe(obj)
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(e, nil, errDeleted())
}
