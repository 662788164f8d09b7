package quotas

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	quota "k8s.io/apiserver/pkg/quota/v1"
	clients "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
)

// lookInterval is how often await checks a cache that does not have a count yet.
const lookInterval = time.Millisecond

// Limits are the quotas of namespaces. Cached is the cache from which the charging plugin reads
// them. Stored reads stored quotas. It reads a single quota only if the cache does not have a count
// for its limits.
type Limits struct {
	Cached listers.ResourceQuotaLister
	Stored clients.ResourceQuotasGetter
}

// hold reports whether a namespace has quotas. It returns when the cache has the counted limits
// that were stored before. Without a count, the plugin would let a request exceed the limits.
func (l Limits) hold(ctx context.Context, namespace string) (bool, error) {
	known, err := l.Cached.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return true, err
	}
	for _, q := range known {
		if !quota.Equals(q.Spec.Hard, q.Status.Hard) {
			if err := l.await(ctx, q); err != nil {
				return true, err
			}
		}
	}
	return len(known) > 0, nil
}

// await returns when the cache has the stored state of a quota, or after a moment.
func (l Limits) await(ctx context.Context, q *corev1.ResourceQuota) error {
	stored, err := l.Stored.ResourceQuotas(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the quota %s of namespace %s: %w", q.Name, q.Namespace, err)
	}
	_ = wait.PollUntilContextTimeout(ctx, lookInterval, patience, true, func(context.Context) (bool, error) {
		cached, err := l.Cached.ResourceQuotas(q.Namespace).Get(q.Name)
		if err != nil {
			return true, nil
		}
		order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, stored.ResourceVersion)
		return err != nil || order >= 0, nil
	})
	return nil
}
