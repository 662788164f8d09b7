package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/auth"
)

// retryInterval is how often a server tries to make the objects that it could not make at its
// start.
const retryInterval = 5 * time.Second

// Objects makes the default objects of a cluster. These writes go through admission like all other
// writes, and may call a webhook that is down. Such a webhook must not keep a server from starting:
// the administrator needs the server to repair the webhook. When the API refuses an object, that
// step of the start counts as done, and Retry makes the object later.
type Objects struct {
	Client kubernetes.Interface
	// ServiceRange is the range of cluster IPs.
	ServiceRange string
	// MakeAccount makes the service account of a namespace; nil if no controller of this
	// server does.
	MakeAccount func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error)

	mu struct {
		sync.Mutex
		// missing makes the objects that could not be made at the start.
		missing []func(context.Context) error
	}
}

// OrLater returns a function that calls create. When the API refuses the objects, the function
// returns nil, and Retry creates them later.
func (o *Objects) OrLater(create func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		// Servers that start together make the same objects.
		err := retry.OnError(retry.DefaultBackoff, overtaken, func() error { return create(ctx) })
		// A denial of a webhook may have no reason; it is a response of the API all the same.
		if status := apierrors.APIStatus(nil); err == nil || !errors.As(err, &status) {
			return err
		}
		klog.ErrorS(err, "Could not create a default object; will retry")
		o.mu.Lock()
		defer o.mu.Unlock()
		o.mu.missing = append(o.mu.missing, create)
		return nil
	}
}

// overtaken reports whether an error means that another server was faster.
func overtaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// Retry makes the objects that could not be made at the start, as soon as the API accepts them.
// The caller must have waited for all steps of the start.
func (o *Objects) Retry(ctx context.Context) {
	o.mu.Lock()
	missing := o.mu.missing
	o.mu.Unlock()
	if len(missing) == 0 {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, retryInterval, false, func(ctx context.Context) (bool, error) {
		var still []func(context.Context) error
		for _, create := range missing {
			if err := create(ctx); err != nil {
				still = append(still, create)
				klog.V(2).ErrorS(err, "Still could not create a default object; will retry")
			}
		}
		if missing = still; len(still) == 0 {
			klog.InfoS("Created all default objects")
		}
		return len(still) == 0, nil
	})
}

// ensure creates an object unless an object of its name exists.
func ensure[T metav1.Object](ctx context.Context, client interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Create(context.Context, T, metav1.CreateOptions) (T, error)
}, object T) error {
	// Usually the object exists, and a read calls no webhook.
	_, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, object, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// systemNamespaces exist from the start, with the service accounts that their pods need.
// Other namespaces need their service account only for their first pod: see
// controllers.MakeAccount.
var systemNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// Namespaces makes the namespaces of the system.
func (o *Objects) Namespaces(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range systemNamespaces {
		group.Go(func() error { return o.createNamespace(ctx, name) })
	}
	return group.Wait()
}

func (o *Objects) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := ensure(ctx, o.Client.CoreV1().Namespaces(), namespace); err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	if o.MakeAccount == nil {
		return nil
	}
	if _, err := o.MakeAccount(ctx, name); err != nil {
		return fmt.Errorf("service account of namespace %s: %w", name, err)
	}
	return nil
}

// ServiceCIDR makes the range of cluster IPs. An existing range stays, because its addresses are in
// use.
func (o *Objects) ServiceCIDR(ctx context.Context) error {
	cidr := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{o.ServiceRange}},
	}
	if err := ensure(ctx, o.Client.NetworkingV1().ServiceCIDRs(), cidr); err != nil {
		return fmt.Errorf("range of cluster IPs: %w", err)
	}
	return nil
}

// PriorityClasses makes the two default priority classes of a cluster.
func (o *Objects) PriorityClasses(ctx context.Context) error {
	classes := o.Client.SchedulingV1().PriorityClasses()
	for _, class := range schedulingv1.SystemPriorityClasses() {
		if err := ensure(ctx, classes, class); err != nil {
			return fmt.Errorf("priority class %s: %w", class.Name, err)
		}
	}
	return nil
}

// Roles makes the default roles of RBAC.
func (o *Objects) Roles(ctx context.Context) error { return auth.Bootstrap(ctx, o.Client) }
