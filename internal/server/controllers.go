package server

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/election"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lazyinformer"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
)

// replicaSettle is how long other replicas may take to hear of a new kind, or that a
// namespace is being deleted.
const replicaSettle = 2 * time.Second

// settle returns how long to wait for other replicas; 0 when there are none.
func (a *admitter) settle(ctx context.Context) time.Duration {
	if alone, err := a.announcer.Alone(ctx); err != nil || !alone {
		return replicaSettle
	}
	return 0
}

// leaseOfControllers is the name, in kube-system, of the Lease of the server that runs
// the controllers.
const leaseOfControllers = "gatehouse-controllers"

// controllerParts are what controllers work with.
type controllerParts struct {
	settings *settings
	serving  *serving
	self     *loopback
	admitter *admitter
	stores   *stores
	api      *api
	kinds    []catalog.Group
	etcd     etcdKeys
}

// newControllers sets up the controllers, which work on objects outside of requests
// once the server is ready.
func newControllers(p controllerParts) (*controllers.Controllers, error) {
	s := p.settings
	builtins := builtinCollections(p.api.static, s.EtcdPrefix, p.stores.places)
	o := controllers.Options{
		Selection: s.Controllers,
		Loopback:  p.self.config, Informers: p.self.informers, RBAC: s.authorizes("RBAC"),
		Etcd: p.etcd, Prefix: prefixes(p.api.static, p.api.aggregator.Remote, s.EtcdPrefix, p.stores.places),
		Namespaces: namespaces.Options{
			Collections: func() []namespaces.Collection {
				return append(slices.Clip(builtins), customCollections(p.api.custom.Versions(), s.EtcdPrefix)...)
			},
			Remote: p.api.aggregator.Remote,
			Etcd:   p.etcd,
		},
		CheckTypes: p.api.types.Run,
		FakeNodes:  s.FakeNodes,
		Fences:     p.admitter.fences,
		RootCA:     p.serving.ca,
		CAFile:     p.serving.pki.CAFile, CAKeyFile: p.serving.pki.CAKeyFile,
		TokenKey: p.serving.tokens.key,
	}
	o.Namespaces.Creating = p.admitter.creations.UnderWay
	if !s.sharesEtcd() {
		return controllers.New(o)
	}
	o.Namespaces.Settle = p.admitter.settle
	leases, err := election.Stored(catalog.Find(p.kinds, coordinationv1.SchemeGroupVersion.WithResource("leases")))
	if err != nil {
		return nil, err
	}
	o.Election, err = election.New(election.Options{
		Leases: leases, Namespace: metav1.NamespaceSystem, Name: leaseOfControllers, Identity: replicaID(),
	})
	if err != nil {
		return nil, err
	}
	return controllers.New(o)
}

// etcdKeys reads and watches keys of etcd.
type etcdKeys interface {
	clientv3.KV
	clientv3.Watcher
}

// prefixes says where the objects of each resource are in etcd. Those of remote group versions
// are elsewhere.
func prefixes(static resources.Static, remote func() []schema.GroupVersion, root string, storage serverstorage.StorageFactory) lazyinformer.Prefix {
	builtin := map[schema.GroupResource]string{}
	groups := map[string]bool{}
	for gvr, endpoints := range static {
		groups[gvr.Group] = true
		e := endpoints[""]
		if e == nil {
			continue
		}
		if _, stored := e.Storage.(rest.CollectionDeleter); stored {
			builtin[gvr.GroupResource()] = path.Join(root, storage.ResourcePrefix(gvr.GroupResource())) + "/"
		}
	}
	definitions := apiextensions.Resource("customresourcedefinitions")
	builtin[aggregation.GroupVersion.WithResource(aggregation.Resource).GroupResource()] = path.Join(root, aggregation.Prefix) + "/"
	builtin[definitions] = path.Join(root, definitions.Group, definitions.Resource) + "/"
	return func(gr schema.GroupResource) string {
		if groups[gr.Group] {
			return builtin[gr]
		}
		if slices.ContainsFunc(remote(), func(gv schema.GroupVersion) bool { return gv.Group == gr.Group }) {
			return ""
		}
		// Custom resources, also those of a definition that is gone or yet to come.
		return path.Join(root, gr.Group, gr.Resource) + "/"
	}
}

// builtinCollections lists the built-in resources that a namespace can contain,
// each once: versions and groups that share storage count as one.
func builtinCollections(static resources.Static, prefix string, storage serverstorage.StorageFactory) []namespaces.Collection {
	var list []namespaces.Collection
	seen := map[string]bool{}
	for gvr, endpoints := range static {
		e := endpoints[""]
		if e == nil || !e.Discovery.Namespaced {
			continue
		}
		if _, ok := e.Storage.(rest.CollectionDeleter); !ok {
			continue
		}
		key := path.Join(prefix, storage.ResourcePrefix(schema.GroupResource{Group: gvr.Group, Resource: gvr.Resource}))
		if !seen[key] {
			seen[key] = true
			list = append(list, namespaces.Collection{GroupVersionResource: gvr, Prefix: key})
		}
	}
	return list
}

// customCollections lists the custom resources that a namespace can contain, by
// their preferred version.
func customCollections(versions []customresources.Version, prefix string) []namespaces.Collection {
	var list []namespaces.Collection
	seen := map[schema.GroupResource]bool{}
	for _, v := range versions {
		for _, r := range v.Resources {
			gvr := v.GroupVersion.WithResource(r.Name)
			if !r.Namespaced || strings.Contains(r.Name, "/") || seen[gvr.GroupResource()] {
				continue
			}
			seen[gvr.GroupResource()] = true
			list = append(list, namespaces.Collection{GroupVersionResource: gvr, Prefix: path.Join(prefix, gvr.Group, gvr.Resource)})
		}
	}
	return list
}
