package server

import (
	"context"
	"path"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

const (
	// countAge is how old the count of a resource's objects may be when a list is weighed.
	countAge = 10 * time.Second
	// countTimeout bounds how long a list waits for its weight.
	countTimeout = time.Second
	// countSample is the number of objects that are read to estimate the average size of a
	// resource's objects.
	countSample = 10
	// maxCounts bounds the resources with a cached count, because users can ask for any name.
	maxCounts = 1000
)

// counts returns the number and the size of a resource's objects; priority and fairness uses them
// to weigh lists. kube-apiserver counts all resources each minute. counts counts only resources
// that users list, when they list them.
type counts struct {
	etcd clientv3.KV
	// place returns the prefix of the keys of a resource.
	place func(schema.GroupResource) string

	mu    sync.Mutex
	known map[string]*resourceCount
}

// resourceCount is the count of one resource.
type resourceCount struct {
	mu    sync.Mutex
	stats storage.Stats
	at    time.Time
}

// newCounts returns the counts of the objects in an etcd.
func newCounts(etcd clientv3.KV, root string, prefix func(schema.GroupResource) string) *counts {
	return &counts{etcd: etcd, known: map[string]*resourceCount{}, place: func(gr schema.GroupResource) string {
		if legacyscheme.Scheme.IsGroupRegistered(gr.Group) {
			return path.Join(root, prefix(gr)) + "/"
		}
		return path.Join(root, gr.Group, gr.Resource) + "/"
	}}
}

// Get implements flowcontrolrequest.StorageObjectCountTracker.
func (c *counts) Get(resource string) (storage.Stats, error) {
	c.mu.Lock()
	one := c.known[resource]
	if one == nil {
		if len(c.known) >= maxCounts {
			clear(c.known)
		}
		one = &resourceCount{}
		c.known[resource] = one
	}
	c.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	if !one.at.IsZero() && time.Since(one.at) < countAge {
		return one.stats, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	prefix := c.place(schema.ParseGroupResource(resource))
	found, err := c.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(countSample), clientv3.WithSerializable())
	one.at = time.Now()
	if err != nil {
		// The next list does not wait again.
		if one.stats.ObjectCount == 0 {
			return one.stats, flowcontrolrequest.ObjectCountNotFoundErr
		}
		return one.stats, flowcontrolrequest.ObjectCountStaleErr
	}
	size := 0
	for _, kv := range found.Kvs {
		size += len(kv.Value)
	}
	one.stats = storage.Stats{ObjectCount: found.Count, EstimatedAverageObjectSizeBytes: int64(size / max(len(found.Kvs), 1))}
	return one.stats, nil
}

// Set implements flowcontrolrequest.StorageObjectCountTracker.
func (*counts) Set(string, storage.Stats) {}

// RunUntil implements flowcontrolrequest.StorageObjectCountTracker.
func (*counts) RunUntil(stop <-chan struct{}) { <-stop }
