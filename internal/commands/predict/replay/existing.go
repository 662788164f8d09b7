package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
)

// Existing provides the objects of a cluster as requests: updates that change nothing, or creates.
type Existing struct {
	// Config is the client configuration of the cluster. If it is nil, the objects come from Snapshot.
	Config   *rest.Config
	Snapshot *clustersnapshot.Cluster
	// AsCreate makes the requests creates.
	AsCreate bool
	// Resources limits the resources read from a cluster, as RESOURCE or RESOURCE.GROUP; empty means all.
	Resources []string
	// Rate limits the objects read from a cluster per second; 0 means no limit. With a Rate, pages are smaller, so that
	// fewer objects are in memory at the same time.
	Rate float64
}

// The user of requests that are made from existing objects.
const (
	administrator = "kubernetes-admin"
	masters       = "system:masters"
)

// pageSize is the page size of lists, and pageAtRate the page size with a Rate.
const (
	pageSize   = 500
	pageAtRate = 20
)

// unread lists the resources whose objects are not read, with the reason: secrets, and objects that are not
// configuration.
var unread = map[schema.GroupResource]string{
	{Resource: "secrets"}:                                 "secrets are never read",
	{Resource: "events"}:                                  "events are not read",
	{Group: "events.k8s.io", Resource: "events"}:          "events are not read",
	{Resource: "componentstatuses"}:                       "component statuses are not stored",
	{Group: "coordination.k8s.io", Resource: "leases"}:    "leases are not read",
	{Group: "gatehouse.dev", Resource: "admissiontraces"}: "traces are not stored",
}

// Read implements Source.
func (e *Existing) Read(ctx context.Context, take func(*requestlog.Entry) error) (*requestlog.Count, error) {
	count := &requestlog.Count{}
	one := func(u *unstructured.Unstructured, resource schema.GroupVersionResource) error {
		q, err := e.request(u, resource)
		if err != nil {
			return err
		}
		count.Requests++
		return take(q)
	}
	if e.Config == nil {
		objects := e.Snapshot.Objects()
		kinds := kindsOf(objects)
		for _, u := range objects {
			k := kinds.Of(u.GroupVersionKind())
			if k.Guessed {
				count.LeaveOut("nothing defines the kind "+u.GroupVersionKind().GroupKind().String(), titleOf(u))
				continue
			}
			if err := one(u, k.Resource); err != nil {
				return nil, err
			}
		}
		return count, nil
	}
	return count, e.cluster(ctx, count, one)
}

// cluster lists the objects of the cluster, resource by resource and page by page.
func (e *Existing) cluster(ctx context.Context, count *requestlog.Count, one func(*unstructured.Unstructured, schema.GroupVersionResource) error) error {
	discover, err := discovery.NewDiscoveryClientForConfig(e.Config)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(e.Config)
	if err != nil {
		return err
	}
	lists, err := discover.ServerPreferredResources()
	if len(lists) == 0 && err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	if err != nil {
		count.LeaveOut("discovery is not complete: "+strings.Join(strings.Fields(err.Error()), " "), "")
	}
	served, err := discovery.GroupVersionResources(lists)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	for _, name := range e.Resources {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(served)), func(r schema.GroupVersionResource) bool { return r.GroupResource().String() == name }) {
			count.LeaveOut("the cluster does not serve the resource", name)
		}
	}
	writable, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "update"}}, lists))
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	resources := slices.SortedFunc(maps.Keys(writable), func(a, b schema.GroupVersionResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	page, turn := int64(pageSize), rate.NewLimiter(rate.Inf, 1)
	if e.Rate > 0 {
		page, turn = pageAtRate, rate.NewLimiter(rate.Limit(e.Rate), 1)
	}
	for _, r := range resources {
		if len(e.Resources) > 0 && !slices.Contains(e.Resources, r.GroupResource().String()) {
			continue
		}
		if why := unread[r.GroupResource()]; why != "" {
			if !slices.ContainsFunc(count.Other, func(o requestlog.Reason) bool { return o.Reason == why }) {
				count.Other = append(count.Other, requestlog.Reason{Reason: why, Count: 1, First: r.GroupResource().String()})
			}
			continue
		}
		o := metav1.ListOptions{Limit: page}
		for {
			list, err := client.Resource(r).List(ctx, o)
			if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsResourceExpired(err) {
				count.LeaveOut("not listed: "+strings.Join(strings.Fields(err.Error()), " "), r.GroupResource().String())
				break
			}
			if err != nil {
				return fmt.Errorf("listing %s: %w", r.GroupResource(), err)
			}
			for i := range list.Items {
				if err := turn.Wait(ctx); err != nil {
					return err
				}
				if err := one(&list.Items[i], r); err != nil {
					return err
				}
			}
			if o.Continue = list.GetContinue(); o.Continue == "" {
				break
			}
		}
	}
	return nil
}

// request makes a request from an object.
func (e *Existing) request(u *unstructured.Unstructured, resource schema.GroupVersionResource) (*requestlog.Entry, error) {
	q := &requestlog.Entry{
		APIVersion: requestlog.APIVersion, Kind: requestlog.Kind, Operation: requestlog.Update, Namespace: u.GetNamespace(), Name: u.GetName(), Place: titleOf(u),
		Resource: metav1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource},
	}
	q.User.Username, q.User.Groups = administrator, []string{masters, "system:authenticated"}
	sent := u.DeepCopy()
	// Field managers do not affect admission, and are half of the object's size.
	sent.SetManagedFields(nil)
	if e.AsCreate {
		q.Operation = requestlog.Create
		delete(sent.Object, "status")
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"} {
			unstructured.RemoveNestedField(sent.Object, "metadata", field)
		}
	}
	data, err := json.Marshal(sent.Object)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s", q.Place), err)
	}
	if q.Object = data; !e.AsCreate {
		q.OldObject = data
	}
	return q, nil
}
