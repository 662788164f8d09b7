package caches

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/plugins"
)

// caughtUpInterval is how often CaughtUp checks a cache that is behind.
const caughtUpInterval = 2 * time.Millisecond

// CaughtUp returns when the caches have all objects that were stored before the call. CaughtUp
// does not wait for deletions. client reads the stored objects.
func (c *Caches) CaughtUp(ctx context.Context, client metadata.Interface) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, gvr := range c.resources {
		group.Go(func() error { return c.caughtUp(ctx, client, gvr) })
	}
	return group.Wait()
}

// read lists the resources that plugins and RBAC read from caches.
func read(running []string, rbac bool) []schema.GroupVersionResource {
	var list []schema.GroupVersionResource
	for _, p := range plugins.All() {
		if !slices.Contains(running, p.Name) {
			continue
		}
		for _, r := range p.Reads {
			// Plugins read pods only on demand, and not from these caches.
			gvr := r.WithVersion("v1")
			if gvr.Resource != "pods" && !slices.Contains(list, gvr) {
				list = append(list, gvr)
			}
		}
	}
	if rbac {
		for _, resource := range []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"} {
			list = append(list, schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource})
		}
	}
	return list
}

// caughtUp returns when the informer of a resource has the objects that are stored now.
func (c *Caches) caughtUp(ctx context.Context, client metadata.Interface, gvr schema.GroupVersionResource) error {
	informer, err := c.factory.ForResource(gvr)
	if err != nil {
		return err
	}
	stored, err := client.Resource(gvr).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing %s: %w", gvr.Resource, err)
	}
	for i := range stored.Items {
		err := wait.PollUntilContextCancel(ctx, caughtUpInterval, true, func(context.Context) (bool, error) {
			_, current := inCache(informer.Informer().GetStore(), &stored.Items[i])
			return current, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for the cache of %s: %w", gvr.Resource, context.Cause(ctx))
		}
	}
	return nil
}

// inCache reports whether a cache has an object, and whether it has it as it was stored or later.
func inCache(store cache.Store, stored metav1.Object) (there, current bool) {
	found, there, err := store.GetByKey(cache.MetaObjectToName(stored).String())
	if err != nil || !there {
		return false, false
	}
	cached, err := meta.Accessor(found)
	if err != nil {
		return false, false
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), stored.GetResourceVersion())
	return true, err != nil || order >= 0
}
