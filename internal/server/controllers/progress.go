package controllers

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lazyinformer"
)

// progress tracks up to which revision each of the garbage collector's monitors has read. When the
// collector gets the deletion of an owner, it orphans the dependents in its graph, or deletes them
// in the foreground. Each kind has a watch of its own. The collector may therefore get a dependent
// later than the deletion of its owner, even if the dependent was made first: it would then treat
// the owner as absent, and delete the dependent. So the event of such an owner is delayed until the
// monitors of all kinds have passed on the objects that were stored before.
type progress struct {
	// term ends all waiting.
	term   context.Context
	etcd   clientv3.KV
	prefix lazyinformer.Prefix

	mu    sync.Mutex
	kinds map[schema.GroupVersionResource]*kindProgress
}

const (
	// holdAtMost bounds how long the event of an owner is delayed. A kind whose objects cannot be
	// read, as when a conversion webhook is down, must not stop the collector.
	holdAtMost = 10 * time.Second
	// lookInterval is how often the revision of a monitor that is behind is read.
	lookInterval = 2 * time.Millisecond
	// perLook is how many kinds one transaction reads from etcd, which accepts 128 operations.
	perLook = 100
)

// kindProgress is the progress of the monitor of one kind. The methods of a nil kindProgress do
// nothing.
type kindProgress struct {
	progress *progress
	prefix   string
	// revision is the revision up to which the collector got all objects.
	revision atomic.Uint64
	// behind is set after a wait that timed out, until the monitor has caught up.
	behind atomic.Bool

	mu     sync.Mutex
	synced func() bool
	// users counts the monitors of the kind; the progress's mutex guards it.
	users int
}

// of returns the progress of a kind. It returns nil if p is nil, as for the monitors of other
// controllers than the collector, and for kinds that this server does not store.
func (p *progress) of(kind schema.GroupVersionResource) *kindProgress {
	if p == nil {
		return nil
	}
	prefix := p.prefix(kind.GroupResource())
	if prefix == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[kind]
	if k == nil {
		k = &kindProgress{progress: p, prefix: prefix, synced: func() bool { return false }}
		if p.kinds == nil {
			p.kinds = map[schema.GroupVersionResource]*kindProgress{}
		}
		p.kinds[kind] = k
	}
	return k
}

// follow notes that a monitor of the kind begins. synced reports whether the collector got the
// first list.
func (k *kindProgress) follow(synced func() bool) {
	if k == nil {
		return
	}
	k.progress.mu.Lock()
	defer k.progress.mu.Unlock()
	k.users++
	k.mu.Lock()
	defer k.mu.Unlock()
	k.synced = synced
}

// forget notes that a monitor of the kind has ended. hold does not wait for a kind without a
// monitor.
func (k *kindProgress) forget() {
	if k == nil {
		return
	}
	p := k.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.users--; k.users <= 0 {
		maps.DeleteFunc(p.kinds, func(_ schema.GroupVersionResource, other *kindProgress) bool { return other == k })
	}
}

// passed notes that the collector got an object.
func (k *kindProgress) passed(obj any) {
	if k == nil {
		return
	}
	if m, err := meta.Accessor(obj); err == nil {
		k.advance(versionOf(m))
	}
}

func (k *kindProgress) advance(revision uint64) {
	for old := k.revision.Load(); old < revision && !k.revision.CompareAndSwap(old, revision); {
		old = k.revision.Load()
	}
}

// hold returns at once, except for the first event that shows the deletion of an object whose
// dependents come first. Then it returns when the collector has seen all dependents that were
// stored before.
func (k *kindProgress) hold(before, after any) {
	if k == nil {
		return
	}
	owner, err := meta.Accessor(after)
	if err != nil || !dependentsFirst(owner) {
		return
	}
	if old, err := meta.Accessor(before); before != nil && err == nil && dependentsFirst(old) {
		return
	}
	revision := versionOf(owner)
	if revision == 0 {
		return
	}
	// Events of other kinds that are delayed must not wait for this kind: it has passed on all
	// objects that were stored before.
	k.advance(revision - 1)
	ctx, cancel := context.WithTimeout(k.progress.term, holdAtMost)
	defer cancel()
	k.progress.await(ctx, k, owner.GetNamespace(), revision)
}

// dependentsFirst reports whether the dependents of an object are orphaned or deleted before the
// object.
func dependentsFirst(m metav1.Object) bool {
	return m.GetDeletionTimestamp() != nil && slices.ContainsFunc(m.GetFinalizers(), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
}

func versionOf(m metav1.Object) uint64 {
	n, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	return n
}

// await returns when the collector got all objects that were stored in a namespace up to a
// revision, or when ctx ends. An empty namespace means all namespaces. await does not wait for
// the owner's own kind, whose events come in order.
func (p *progress) await(ctx context.Context, owner *kindProgress, namespace string, revision uint64) {
	p.mu.Lock()
	kinds := make([]*kindProgress, 0, len(p.kinds))
	for _, k := range p.kinds {
		if k != owner && (k.revision.Load() < revision || !k.isSynced()) {
			kinds = append(kinds, k)
		}
	}
	p.mu.Unlock()
	targets, err := p.targets(ctx, kinds, namespace, revision)
	if err != nil {
		if p.term.Err() == nil {
			klog.V(1).InfoS("The garbage collector does not know whether it has heard of all dependents", "err", err)
		}
		return
	}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for k, target := range targets {
		for !k.reached(target) {
			if k.behind.Load() {
				break
			}
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
			}
			if p.term.Err() != nil {
				return
			}
			k.behind.Store(true)
			klog.InfoS("The garbage collector goes on without having heard of all dependents", "prefix", k.prefix, "after", holdAtMost)
			break
		}
	}
}

// targets returns the revision that the monitor of each kind must reach. It leaves out kinds
// without objects. An object that was stored before the revision and written since has a higher
// revision, so the result is at most the given revision.
func (p *progress) targets(ctx context.Context, kinds []*kindProgress, namespace string, revision uint64) (map[*kindProgress]uint64, error) {
	targets := map[*kindProgress]uint64{}
	for some := range slices.Chunk(kinds, perLook) {
		newest := make([]clientv3.Op, len(some))
		for i, k := range some {
			prefix := k.prefix
			if namespace != "" {
				// An object in a namespace owns only objects in the same namespace.
				prefix += namespace + "/"
			}
			newest[i] = clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
				clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
		}
		response, err := p.etcd.Txn(ctx).Then(newest...).Commit()
		if err != nil {
			return nil, err
		}
		for i, k := range some {
			if kvs := response.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
				targets[k] = min(uint64(kvs[0].ModRevision), revision)
			}
		}
	}
	return targets, nil
}

// reached reports whether the collector got all objects of the kind that were last written
// up to a revision.
func (k *kindProgress) reached(revision uint64) bool {
	if !k.isSynced() || k.revision.Load() < revision {
		return false
	}
	k.behind.Store(false)
	return true
}

func (k *kindProgress) isSynced() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.synced()
}
