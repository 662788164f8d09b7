package controllers

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	clientv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// countAtMost bounds a count that must be exact; the controller tries again later.
	countAtMost = 10 * time.Second
	// countTries is how often a quota is counted when charges keep arriving meanwhile, before the
	// count is postponed. A full quota gets no more charges.
	countTries = 5
	// nearlyFull is the share of a limit at which a quota counts as full.
	nearlyFull = 0.9
	// lookAnew is the time after which the keys are read again if the store still misses an object.
	lookAnew = 50 * time.Millisecond
)

// exactQuotas is the client with which the quota controller writes quotas. A count that lowers the
// use may have missed objects that were charged, so the objects are counted again (package quotas).
// exactQuotas is also the factory of the controller's informers, and notes their kinds.
type exactQuotas struct {
	clientv1.ResourceQuotasGetter
	// self reads quotas as the server: the controller's role allows it only to list them.
	self     clientv1.ResourceQuotasGetter
	monitors *monitors
	term     *term
	turns    *turns

	mu sync.Mutex
	// registry counts with listers that have caught up.
	registry quota.Registry
	versions map[schema.GroupResource]schema.GroupVersionResource
}

// ForResource implements upstream's informer factory.
func (q *exactQuotas) ForResource(kind schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := q.monitors.ForResource(kind)
	if err == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.versions[kind.GroupResource()] = kind
	}
	return informer, err
}

// Start implements upstream's informer factory.
func (q *exactQuotas) Start(stop <-chan struct{}) { q.monitors.Start(stop) }

// ResourceQuotas implements clientv1.ResourceQuotasGetter.
func (q *exactQuotas) ResourceQuotas(namespace string) clientv1.ResourceQuotaInterface {
	return exactQuota{q.ResourceQuotasGetter.ResourceQuotas(namespace), q, namespace}
}

type exactQuota struct {
	clientv1.ResourceQuotaInterface
	*exactQuotas
	namespace string
}

// UpdateStatus implements clientv1.ResourceQuotaInterface.
func (q exactQuota) UpdateStatus(ctx context.Context, counted *corev1.ResourceQuota, o metav1.UpdateOptions) (*corev1.ResourceQuota, error) {
	if q.term.options.Fences == nil {
		return q.ResourceQuotaInterface.UpdateStatus(ctx, counted, o)
	}
	id := types.NamespacedName{Namespace: q.namespace, Name: counted.Name}
	if !q.turns.begin(id) {
		return counted, nil
	}
	took := time.Duration(0)
	defer func() { q.turns.end(id, took) }()
	current, err := q.self.ResourceQuotas(q.namespace).Get(ctx, counted.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if !lowers(current.Status.Used, counted.Status.Used) {
		return q.ResourceQuotaInterface.UpdateStatus(ctx, counted, o)
	}
	began := time.Now()
	for try := 1; ; try++ {
		written, err := q.recount(ctx, counted, o)
		if !frees(current, counted.Status.Used) {
			took = time.Since(began)
		}
		if !apierrors.IsConflict(err) || try == countTries {
			return written, err
		}
	}
}

// lowers reports whether less is used than before.
func lowers(before, after corev1.ResourceList) bool {
	for name, was := range before {
		if now, ok := after[name]; ok && now.Cmp(was) < 0 {
			return true
		}
	}
	return false
}

// frees reports whether a quota that is full, or nearly so, has room after it was counted. Its next
// count must not wait: it delays only creates that would be refused, and clients need the room.
func frees(full *corev1.ResourceQuota, after corev1.ResourceList) bool {
	for name, hard := range full.Status.Hard {
		used, now := full.Status.Used[name], after[name]
		if now.Cmp(used) < 0 && used.AsApproximateFloat64() >= nearlyFull*hard.AsApproximateFloat64() {
			return true
		}
	}
	return false
}

// recount counts the objects of a quota, and writes the quota unless a charge changed it
// meanwhile. It reads the quota before it moves the fence, so that such a charge makes the write
// fail.
func (q exactQuota) recount(ctx context.Context, about *corev1.ResourceQuota, o metav1.UpdateOptions) (*corev1.ResourceQuota, error) {
	ctx, cancel := context.WithTimeout(ctx, countAtMost)
	defer cancel()
	fences := q.term.options.Fences
	defer fences.Pause(ctx, q.namespace)()
	current, err := q.self.ResourceQuotas(q.namespace).Get(ctx, about.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if err := fences.Move(ctx, q.namespace); err != nil {
		return nil, err
	}
	registry := q.counting(current)
	used, err := quota.CalculateUsage(q.namespace, current.Spec.Scopes, current.Spec.Hard, registry, current.Spec.ScopeSelector)
	if err != nil {
		return nil, err
	}
	next := current.DeepCopy()
	next.Status.Hard = current.Spec.Hard.DeepCopy()
	// The use of resources that cannot be counted is not changed.
	all := corev1.ResourceList{}
	maps.Copy(all, current.Status.Used)
	maps.Copy(all, used)
	next.Status.Used = quota.Mask(all, quota.ResourceNames(current.Spec.Hard))
	if quota.Equals(next.Status.Used, current.Status.Used) && quota.Equals(next.Status.Hard, current.Status.Hard) {
		return current, nil
	}
	return q.ResourceQuotaInterface.UpdateStatus(ctx, next, o)
}

// counting returns the evaluators of a quota's resources, including kinds that were added later.
func (q *exactQuotas) counting(about *corev1.ResourceQuota) quota.Registry {
	q.mu.Lock()
	defer q.mu.Unlock()
	for gr, kind := range q.versions {
		if _, limited := about.Spec.Hard[generic.ObjectCountQuotaResourceNameFor(gr)]; limited && q.registry.Get(gr) == nil {
			q.registry.Add(generic.NewObjectCountEvaluator(gr, generic.ListResourceUsingListerFunc(q.lister, kind), ""))
		}
	}
	return q.registry
}

// lister returns a lister of the objects that are stored at the time of a list.
func (q *exactQuotas) lister(kind schema.GroupVersionResource) (cache.GenericLister, error) {
	informer, err := q.monitors.ForResource(kind)
	if err != nil {
		return nil, err
	}
	return caughtUpLister{informer.Lister(), informer.Informer().GetStore(), q.term, q.term.options.Prefix(kind.GroupResource())}, nil
}

// caughtUpLister is a lister whose lists of a namespace have all objects that were stored before.
type caughtUpLister struct {
	cache.GenericLister
	store  cache.Store
	term   *term
	prefix string
}

// ByNamespace implements cache.GenericLister.
func (l caughtUpLister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	return caughtUpNamespace{l.GenericLister.ByNamespace(namespace), l, namespace}
}

type caughtUpNamespace struct {
	cache.GenericNamespaceLister
	of        caughtUpLister
	namespace string
}

// List implements cache.GenericNamespaceLister.
func (l caughtUpNamespace) List(selector labels.Selector) ([]runtime.Object, error) {
	// Objects that another server stores are counted by the informer's state.
	if l.of.prefix != "" {
		ctx, cancel := context.WithTimeout(l.of.term.over, countAtMost)
		defer cancel()
		if err := l.of.await(ctx, l.namespace); err != nil {
			return nil, err
		}
	}
	return l.GenericNamespaceLister.List(selector)
}

// await returns when the store has all objects that etcd has in a namespace. The store may still
// have objects that were deleted.
func (l caughtUpLister) await(ctx context.Context, namespace string) error {
	prefix := l.prefix + namespace + "/"
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		found, err := l.term.options.Etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return fmt.Errorf("reading the keys below %s: %w", prefix, err)
		}
		missing := 0
		for began := time.Now(); missing < len(found.Kvs) && time.Since(began) < lookAnew; {
			kv := found.Kvs[missing]
			if l.has(namespace+"/"+strings.TrimPrefix(string(kv.Key), prefix), uint64(kv.ModRevision)) {
				missing++
				continue
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("waiting for the dependents of %s: %w", prefix, context.Cause(ctx))
			}
		}
		if missing == len(found.Kvs) {
			return nil
		}
	}
}

// has reports whether the store has an object at a revision, or later.
func (l caughtUpLister) has(key string, revision uint64) bool {
	found, ok, err := l.store.GetByKey(key)
	if err != nil || !ok {
		return false
	}
	m, err := meta.Accessor(found)
	return err == nil && versionOf(m) >= revision
}
