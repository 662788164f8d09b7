package server

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/fresh"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/params"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage"
)

// newParams makes what reads params. A server alone on its etcd knows of all writes.
func newParams(s *settings, db *database) *params.Reader {
	o := params.Options{Strict: s.strict(), StepAside: inflight.StepAside, Observe: admission.CountParamsRead}
	if s.sharesEtcd() && !s.strict() {
		o.Follow = func(ctx context.Context, prefix string, changed func(string)) {
			root := path.Clean("/" + s.EtcdPrefix)
			fresh.WatchBelow(ctx, db.client.Client, root+prefix, func(key string) { changed(strings.TrimPrefix(key, root)) })
		}
	}
	return params.New(o)
}

// caches are the informers that requests are judged by, by resource.
type caches map[schema.GroupResource]cache.SharedIndexInformer

// notAwaited are resources that requests are judged by whose writes are answered at once,
// because there are very many.
var notAwaited = []string{"persistentvolumeclaims", "persistentvolumes"}

// readLive are resources of which a new object is read from the storage until the cache has
// it.
var readLive = []schema.GroupResource{{Resource: "namespaces"}, {Resource: "serviceaccounts"}}

// awaitCaches has writes wait for the caches from now on. Before, nobody could tell the
// difference, and the start would take longer.
func (a *admitter) awaitCaches(factory informers.SharedInformerFactory) error {
	all := caches{}
	for _, gvr := range a.settings.cached() {
		if slices.Contains(notAwaited, gvr.Resource) {
			continue
		}
		informer, err := factory.ForResource(gvr)
		if err != nil {
			return err
		}
		all[gvr.GroupResource()] = informer.Informer()
	}
	a.judgedBy.Store(&all)
	return nil
}

// written is called with each write, before it is answered: the next request is judged by it
// (S20.8).
func (a *admitter) written(ctx context.Context, w storage.Write) {
	a.params.Written(w.Place, w.Key)
	if all := a.judgedBy.Load(); all != nil && w.Object != nil {
		if informer := (*all)[w.Resource]; informer != nil {
			awaitCache(ctx, informer, w)
		}
	}
}

const (
	// cacheWait bounds how long a write waits for a cache, and cacheInterval is how often it
	// looks: a watch that breaks begins again a second later.
	cacheWait     = time.Second
	cacheInterval = 500 * time.Microsecond
)

// awaitCache returns when a cache knows of a write.
func awaitCache(ctx context.Context, informer cache.SharedIndexInformer, w storage.Write) {
	stored, err := meta.Accessor(w.Object)
	if err != nil || w.Operation != storage.Deleted && !isShown(ctx, w) || !informer.HasSynced() {
		return
	}
	name := stored.GetName()
	if namespace := stored.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	seen := func() bool {
		found, ok, err := informer.GetStore().GetByKey(name)
		if err != nil || !ok {
			return w.Operation == storage.Deleted
		}
		cached, err := meta.Accessor(found)
		return err != nil || revisionOf(cached) >= revisionOf(stored)
	}
	if seen() {
		return
	}
	defer inflight.StepAside(ctx)()
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	tick := time.NewTicker(cacheInterval)
	defer tick.Stop()
	for !seen() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// isShown reports whether the cache will have what was written, and whether a request might be
// judged otherwise by it.
func isShown(ctx context.Context, w storage.Write) bool {
	if initializers.Has(w.Object) {
		return false
	}
	if info, ok := request.RequestInfoFrom(ctx); ok && info.Subresource == "status" {
		return false
	}
	return w.Operation != storage.Created || !slices.Contains(readLive, w.Resource)
}
