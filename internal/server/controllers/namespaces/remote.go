package namespaces

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// emptyRemote deletes the objects that other servers have in the namespace, and adds the remaining
// ones to r. A server that does not answer may have objects there, so the namespace counts as not
// empty (S22.16).
func (c *Controller) emptyRemote(ctx context.Context, namespace string, r *remaining) {
	if c.Remote == nil {
		return
	}
	seen := map[schema.GroupResource]bool{}
	failed := map[schema.GroupVersion]error{}
	for _, gv := range c.Remote() {
		list, err := discovery.ToServerResourcesInterfaceWithContext(c.Client.Discovery()).ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		if err != nil {
			failed[gv] = err
			continue
		}
		for _, resource := range list.APIResources {
			gr := schema.GroupResource{Group: gv.Group, Resource: resource.Name}
			verbs := resource.Verbs
			if !resource.Namespaced || strings.Contains(resource.Name, "/") || seen[gr] ||
				!slices.Contains(verbs, "list") || !slices.Contains(verbs, "delete") {
				continue
			}
			seen[gr] = true
			client := c.Metadata.Resource(gv.WithResource(resource.Name)).Namespace(namespace)
			if err := c.deleteAll(ctx, client, slices.Contains(verbs, "deletecollection"), gr, r); err != nil {
				r.failures = append(r.failures, fmt.Sprintf("%s: %v", gr, err))
			}
		}
	}
	if len(failed) > 0 {
		r.undiscovered = fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(failed), &discovery.ErrGroupDiscoveryFailed{Groups: failed})
	}
}

// deleteAll deletes the objects of one resource of another server, and adds the remaining ones to
// r.
func (c *Controller) deleteAll(ctx context.Context, client metadata.ResourceInterface, collection bool, gr schema.GroupResource, r *remaining) error {
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return err
	}
	if collection {
		err = client.DeleteCollection(ctx, options, metav1.ListOptions{})
	} else {
		for _, item := range list.Items {
			if err = client.Delete(ctx, item.Name, options); err != nil && !apierrors.IsNotFound(err) {
				break
			}
			err = nil
		}
	}
	if err != nil {
		return err
	}
	if list, err = client.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) == 0 {
		return err
	}
	r.add(gr, len(list.Items), list.Items)
	return nil
}
