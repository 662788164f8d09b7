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

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lazyinformer"
)

// progress knows how far the garbage collector's monitors are. The collector orphans, or deletes
// in the foreground, the dependents that it knows of when it hears that their owner is being
// deleted. Each kind has a watch of its own, so that it may hear of a dependent later than of an
// owner that was deleted after the dependent was made: it would then take the dependent for one
// whose owner is gone, and delete it. The news of such an owner is therefore held back until the
// monitors of all kinds have handed on what was stored before.
type progress struct {
	// term ends all waiting.
	term   context.Context
	etcd   clientv3.KV
	prefix lazyinformer.Prefix

	mu    sync.Mutex
	kinds map[schema.GroupVersionResource]*kindProgress
}

const (
	// holdAtMost bounds how long the news of an owner is held back. A kind whose objects cannot
	// be read, as when a conversion webhook is down, must not stop the collector.
	holdAtMost = 10 * time.Second
	// lookInterval is how often a monitor that is behind is looked at.
	lookInterval = 2 * time.Millisecond
	// perLook is of how many kinds one transaction asks etcd, which takes 128 operations.
	perLook = 100
)

// kindProgress is how far the monitor of one kind is. A nil one does nothing.
type kindProgress struct {
	progress *progress
	prefix   string
	// unowned are those that the monitor does not show; nil for most kinds.
	unowned *unowned
	// revision is that up to which the collector got everything.
	revision atomic.Uint64
	// behind is set after a wait that timed out, until the monitor has caught up.
	behind atomic.Bool

	mu     sync.Mutex
	synced func() bool
	// users counts the monitors of the kind; the progress's mutex guards it.
	users int
}

// of returns the progress of a kind. It is nil for monitors without owners, which are not those of
// the collector, and for kinds that this server does not store.
func (p *progress) of(kind schema.GroupVersionResource, o *owners) *kindProgress {
	if p == nil || o == nil {
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
		if kind.Group == admissionregistrationv1.GroupName {
			k.unowned = o.of(kind)
		}
		if p.kinds == nil {
			p.kinds = map[schema.GroupVersionResource]*kindProgress{}
		}
		p.kinds[kind] = k
	}
	return k
}

// follow takes in how to learn that the collector got what there was at first.
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

// forget takes in that a monitor of the kind has ended. Nobody waits for a kind without one.
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

// passed takes in that the collector got an object.
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

// hold returns at once, but for the news that an object is being deleted whose dependents come
// first: then it returns when the collector knows all dependents that were stored before.
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
	// Others that wait must not wait for this kind: it has handed on all that came before.
	k.advance(revision - 1)
	ctx, cancel := context.WithTimeout(k.progress.term, holdAtMost)
	defer cancel()
	k.progress.await(ctx, k, owner.GetNamespace(), revision)
}

// dependentsFirst reports whether the dependents of an object are orphaned or deleted before it goes.
func dependentsFirst(m metav1.Object) bool {
	return m.GetDeletionTimestamp() != nil && slices.ContainsFunc(m.GetFinalizers(), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
}

func versionOf(m metav1.Object) uint64 {
	n, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	return n
}

// await returns when the collector got everything in a namespace, or everywhere if it is
// empty, that was stored up to a revision, or when ctx ends. The kind of the owner comes in order.
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

// targets returns up to which revision the monitors of some kinds must be, those left out for which
// there is nothing. An object that was stored before and written since has a higher revision.
func (p *progress) targets(ctx context.Context, kinds []*kindProgress, namespace string, revision uint64) (map[*kindProgress]uint64, error) {
	targets := map[*kindProgress]uint64{}
	for some := range slices.Chunk(kinds, perLook) {
		newest := make([]clientv3.Op, len(some))
		for i, k := range some {
			prefix := k.prefix
			if namespace != "" {
				// An object in a namespace owns others in it only.
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
	if !k.isSynced() {
		return false
	}
	if k.unowned != nil {
		seen, shown := k.unowned.progress()
		if seen < revision {
			return false
		}
		revision = min(revision, shown)
	}
	if k.revision.Load() < revision {
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
