package recorder

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// labelsWithin is the time that a recorder waits for the labels of namespaces before it records without them.
const labelsWithin = 10 * time.Second

// namespaceLabels caches the labels of the namespaces of a cluster.
type namespaceLabels struct {
	informer cache.SharedIndexInformer
	lister   listersv1.NamespaceLister

	mu sync.Mutex
	// err is the error of the last attempt to read namespaces.
	err error
}

func newNamespaceLabels(client kubernetes.Interface) (*namespaceLabels, error) {
	namespaces := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(labelsAlone)).Core().V1().Namespaces()
	l := &namespaceLabels{informer: namespaces.Informer(), lister: namespaces.Lister()}
	return l, l.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.err = err
		klog.V(2).InfoS("Cannot read namespaces", "err", err)
	})
}

// labelsAlone strips a namespace to its names and labels, to save memory.
func labelsAlone(o any) (any, error) {
	if n, ok := o.(*corev1.Namespace); ok {
		n.Annotations, n.ManagedFields, n.Spec, n.Status = nil, nil, corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	}
	return o, nil
}

// await returns when the labels are known. If they are not, note is the reason.
func (l *namespaceLabels) await(ctx context.Context) (note string) {
	ctx, cancel := context.WithTimeout(ctx, labelsWithin)
	defer cancel()
	if cache.WaitForCacheSync(ctx.Done(), l.informer.HasSynced) {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("the labels of namespaces are not recorded, and a replay does not know what selects by them: %v", l.err)
}

// of returns the labels of a namespace; nil if unknown.
func (l *namespaceLabels) of(namespace string) map[string]string {
	n, err := l.lister.Get(namespace)
	if err != nil {
		return nil
	}
	return n.Labels
}
