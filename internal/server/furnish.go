package server

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/auth"
)

// makeUpInterval is how often a server tries to make what it could not make at
// its start.
const makeUpInterval = 5 * time.Second

// furnisher makes the objects that every cluster has. Like everybody's, they go
// through admission, and a webhook that is down may be for them. That must not
// keep a server from starting: the administrator needs it to repair the webhook. makeUp
// retries what the API refuses, and that step of the start counts as done.
type furnisher struct {
	client       kubernetes.Interface
	serviceRange string
	// makeAccount makes the service account of a namespace; nil if no controller of this
	// server does.
	makeAccount func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error)

	mu struct {
		sync.Mutex
		// missing makes what could not be made at the start.
		missing []func(context.Context) error
	}
}

// inOrder are the steps that later ones need.
func (f *furnisher) inOrder() []bootStep {
	return []bootStep{
		{name: bootNamespaces, do: f.orLater(f.createNamespaces)},
		{name: bootServiceCIDR, do: f.orLater(f.createServiceCIDR)},
		{name: bootPriorityClasses, do: f.orLater(f.createPriorityClasses)},
	}
}

// atOnce are the steps that nothing at the start needs.
func (f *furnisher) atOnce() []bootStep {
	return []bootStep{
		{name: bootRoles, do: f.orLater(func(ctx context.Context) error { return auth.Bootstrap(ctx, f.client) })},
	}
}

// orLater returns what creates objects, or leaves that for makeUp when the API refuses
// them.
func (f *furnisher) orLater(create func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := create(ctx)
		// A denial of a webhook may have no reason; it is an answer of the API all the same.
		if status := apierrors.APIStatus(nil); err == nil || !errors.As(err, &status) {
			return err
		}
		klog.ErrorS(err, "Could not create a default object; will retry")
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.missing = append(f.mu.missing, create)
		return nil
	}
}

// makeUp makes what could not be made at the start, as soon as it can be. It is called
// when all steps are done.
func (f *furnisher) makeUp(ctx context.Context) {
	f.mu.Lock()
	missing := f.mu.missing
	f.mu.Unlock()
	tick := time.NewTicker(makeUpInterval)
	defer tick.Stop()
	for len(missing) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
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
	}
}

// systemNamespaces exist from the start, with the service accounts that their pods need.
// Those of other namespaces have time until the first pod: see controllers.MakeAccount.
var systemNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

func (f *furnisher) createNamespaces(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range systemNamespaces {
		group.Go(func() error { return f.createNamespace(ctx, name) })
	}
	return group.Wait()
}

func (f *furnisher) createNamespace(ctx context.Context, name string) error {
	namespaces := f.client.CoreV1().Namespaces()
	_, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	if f.makeAccount == nil {
		return nil
	}
	if _, err := f.makeAccount(ctx, name); err != nil {
		return fmt.Errorf("service account of namespace %s: %w", name, err)
	}
	return nil
}

// createServiceCIDR makes the range that cluster IPs are taken from. A range
// that is there already stays: addresses of it are in use.
func (f *furnisher) createServiceCIDR(ctx context.Context) error {
	const name = "kubernetes"
	cidrs := f.client.NetworkingV1().ServiceCIDRs()
	_, err := cidrs.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = cidrs.Create(ctx, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{f.serviceRange}},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("range of cluster IPs: %w", err)
	}
	return nil
}

// createPriorityClasses makes the two classes that every cluster has.
func (f *furnisher) createPriorityClasses(ctx context.Context) error {
	classes := f.client.SchedulingV1().PriorityClasses()
	for _, class := range schedulingv1.SystemPriorityClasses() {
		_, err := classes.Get(ctx, class.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = classes.Create(ctx, class, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("priority class %s: %w", class.Name, err)
		}
	}
	return nil
}
