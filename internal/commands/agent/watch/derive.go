package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

// readTimeout bounds a read of the registrations.
const readTimeout = time.Minute

// latest passes the result of a read to set, unless the data changed since the read began.
type latest[T any] struct {
	set func(T)

	mu sync.Mutex
	// changes counts the changes.
	changes int
}

// changed passes the zero value to set: until the next read, the data is unknown.
func (l *latest[T]) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	var none T
	l.set(none)
}

// read passes the result of do to set.
func (l *latest[T]) read(do func() (T, error)) error {
	l.mu.Lock()
	before := l.changes
	l.mu.Unlock()
	value, err := do()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes == before {
		l.set(value)
	}
	return nil
}

// Derive calls set with the webhooks and policies of the cluster, at first and after each change, until ctx ends. From
// a change until the next read, it calls set with nil. Namespaces are watched; params are not read.
func (w *Watcher) Derive(ctx context.Context, set func(*offline.World)) {
	informers := metadatainformer.NewSharedInformerFactoryWithOptions(w.metadata, 0, metadatainformer.WithTransform(withoutManagers))
	namespaces := informers.ForResource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	informer := namespaces.Informer()
	informers.Start(ctx.Done())
	defer informers.Shutdown()
	l, changed := &latest[*offline.World]{set: set}, make(chan struct{}, 1)
	stop := w.changes(ctx, func(schema.GroupVersionResource) {
		l.changed()
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer stop()
	repeat(ctx, changed, func() error {
		err := l.read(func() (*offline.World, error) {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				return nil, errors.New("reading the namespaces: not within " + readTimeout.String())
			}
			kinds, err := offline.Discover(w.options.Config)
			if err != nil {
				return nil, err
			}
			cluster, err := offline.Connect(ctx, w.options.Config, kinds)
			if err != nil {
				return nil, err
			}
			return cluster.Still(func(_ context.Context, name string) (*corev1.Namespace, error) {
				// A request may be older than the informer's cache, or newer.
				return namespaceOf(namespaces.Lister().Get(name))
			}), nil
		})
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot read the webhooks and policies of the cluster: traces have only the facts of the audit log")
		}
		return err
	})
}

// namespaceOf returns the name and the labels of a namespace, for the selectors of webhooks and policies.
func namespaceOf(found any, err error) (*corev1.Namespace, error) {
	m, ok := found.(*metav1.PartialObjectMetadata)
	switch {
	case apierrors.IsNotFound(err), err == nil && !ok:
		return nil, fmt.Errorf("%w: the namespace is gone, or was not there yet", plan.ErrUnknown)
	case err != nil:
		return nil, err
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: m.UID, Labels: m.Labels, Annotations: m.Annotations}}, nil
}
