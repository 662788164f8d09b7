package namespaces

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Collection is a namespaced resource whose objects can be deleted.
type Collection struct {
	schema.GroupVersionResource
	// Prefix is where etcd keeps the resource's objects: the keys of objects in namespace n begin
	// with Prefix + "/n/".
	Prefix string
}

// Options are the inputs of a Controller.
type Options struct {
	// Collections lists the resources that may currently have objects in a namespace.
	Collections func() []Collection
	// Remote lists the current group versions of other servers; nil means that there are none.
	Remote func() []schema.GroupVersion
	// Etcd holds the objects of Collections.
	Etcd clientv3.KV
	// Client and Metadata act as the namespace controller.
	Client   kubernetes.Interface
	Metadata metadata.Interface
	// Informers follow namespaces; the server starts the informers.
	Informers informers.SharedInformerFactory
	// Creating reports whether an object is being created in a namespace that was
	// admitted before, by this server. Nil means never.
	Creating func(namespace string) bool
	// Settle returns for how long after the start of its deletion a namespace may still get
	// objects through other replicas, which have not yet seen the deletion. It is nil when there
	// is only one server.
	Settle func(context.Context) time.Duration
}

const (
	workers = 4
	// syncTimeout bounds one attempt to empty one namespace.
	syncTimeout = time.Minute
	// firstRetry and lastRetry bound how long the next attempt waits.
	firstRetry, lastRetry = 50 * time.Millisecond, 30 * time.Second
)

// Controller deletes the objects in terminating namespaces.
type Controller struct {
	Options
	queue workqueue.TypedRateLimitingInterface[string]
}

// New returns a controller, which does nothing until Run.
func New(o Options) (*Controller, error) {
	c := &Controller{Options: o, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))}
	enqueue := func(obj any) {
		if ns, ok := obj.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil {
			c.queue.Add(ns.Name)
		}
	}
	_, err := o.Informers.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	return c, err
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	survive.Work(ctx, c.queue, workers, func(ctx context.Context, name string) error {
		attempt, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()
		err := c.sync(attempt, name)
		if err != nil && ctx.Err() == nil && !errors.As(err, new(*remaining)) && !errors.Is(err, errCreating) {
			klog.ErrorS(err, "Could not empty a namespace; will retry", "namespace", name)
		}
		return err
	})
}

// errCreating means that a namespace is empty, but a running request may still create an object
// in it.
var errCreating = errors.New("objects are being created in it")

// remaining has the remaining objects of a namespace, their finalizers, and errors.
type remaining struct {
	objects    []string
	finalizers map[string]int
	failures   []string
	// undiscovered names the group versions of other servers for which discovery failed.
	undiscovered string
}

func (r *remaining) Error() string {
	return "objects remain: " + strings.Join(slices.Concat(r.objects, r.failures, []string{r.undiscovered}), ", ")
}

// add adds n objects of a resource, and the finalizers of the known ones.
func (r *remaining) add(gr schema.GroupResource, n int, known []metav1.PartialObjectMetadata) {
	r.objects = append(r.objects, instances(gr, n))
	for _, item := range known {
		for _, f := range item.Finalizers {
			r.finalizers[f]++
		}
	}
}

func (c *Controller) sync(ctx context.Context, name string) error {
	ns, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && ns.DeletionTimestamp == nil) {
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return nil
	}
	// Only the next attempt finds objects that are being created now.
	creating := c.Creating != nil && c.Creating(name)
	rest, err := c.empty(ctx, name)
	if err != nil {
		return err
	}
	if err := c.report(ctx, ns, rest); err != nil {
		return err
	}
	if rest != nil {
		return rest
	}
	if creating {
		return errCreating
	}
	if c.Settle != nil {
		if wait := c.Settle(ctx) - time.Since(ns.DeletionTimestamp.Time); wait > 0 {
			c.queue.AddAfter(name, wait)
			return nil
		}
	}
	return c.finalize(ctx, name)
}

// empty deletes the objects in the namespace and returns the remaining ones, nil for none. While
// pods remain, it deletes nothing else: pods may need their secrets, and the network policies that
// bind them. As in kube-controller-manager, it does not wait for pods whose deletion was refused.
func (c *Controller) empty(ctx context.Context, namespace string) (*remaining, error) {
	r := &remaining{finalizers: map[string]int{}}
	var others []Collection
	for _, resource := range c.Collections() {
		if !isPods(resource) {
			others = append(others, resource)
			continue
		}
		if err := c.emptyOne(ctx, resource, namespace, r); err != nil {
			return nil, err
		}
	}
	if len(r.objects) > 0 && len(r.failures) == 0 {
		return r, nil
	}
	for _, resource := range others {
		if err := c.emptyOne(ctx, resource, namespace, r); err != nil {
			return nil, err
		}
	}
	c.emptyRemote(ctx, namespace, r)
	if len(r.objects) == 0 && len(r.failures) == 0 && r.undiscovered == "" {
		return nil, nil
	}
	return r, nil
}

func isPods(resource Collection) bool {
	return resource.Resource == "pods" && resource.Group == ""
}

// emptyOne deletes the objects of one resource, and adds the remaining ones to r.
func (c *Controller) emptyOne(ctx context.Context, resource Collection, namespace string, r *remaining) error {
	n, err := c.count(ctx, resource, namespace)
	if err != nil || n == 0 {
		return err
	}
	client := c.Metadata.Resource(resource.GroupVersionResource).Namespace(namespace)
	// Some kinds would otherwise keep an object because of its dependents.
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if isPods(resource) {
		// No kubelet reports that the pod has ended.
		options.GracePeriodSeconds = new(int64)
	}
	if err := client.DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
		r.failures = append(r.failures, fmt.Sprintf("%s: %v", resource.GroupResource(), err))
	}
	if n, err = c.count(ctx, resource, namespace); err != nil || n == 0 {
		return err
	}
	var items []metav1.PartialObjectMetadata
	// After an error, the count is enough.
	if list, err := client.List(ctx, metav1.ListOptions{}); err == nil {
		items = list.Items
	}
	r.add(resource.GroupResource(), int(n), items)
	return nil
}

func (c *Controller) count(ctx context.Context, resource Collection, namespace string) (int64, error) {
	prefix := resource.Prefix + "/" + namespace + "/"
	response, err := c.Etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("counting %s: %w", resource.GroupResource(), err)
	}
	return response.Count, nil
}

// report sets the phase and the conditions, which show users why a deletion waits.
func (c *Controller) report(ctx context.Context, ns *corev1.Namespace, r *remaining) error {
	next := ns.DeepCopy()
	next.Status.Phase = corev1.NamespaceTerminating
	if r != nil || len(ns.Status.Conditions) > 0 {
		if r == nil {
			r = &remaining{}
		}
		r.describe(next)
	}
	if next.Status.Phase == ns.Status.Phase && sameConditions(next.Status.Conditions, ns.Status.Conditions) {
		return nil
	}
	updated, err := c.Client.CoreV1().Namespaces().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		*ns = *updated
	}
	return err
}

// finalize removes the finalizer that keeps the namespace.
func (c *Controller) finalize(ctx context.Context, name string) error {
	ns, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err = c.Client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
