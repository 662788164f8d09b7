package server

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"

	"github.com/gatehouse-dev/gatehouse/server/customresources"
	"github.com/gatehouse-dev/gatehouse/server/namespaces"
	"github.com/gatehouse-dev/gatehouse/server/resources"
)

// replicaSettle is how long other replicas may take to hear of a new kind, or that a
// namespace is being deleted.
const replicaSettle = 2 * time.Second

// controllerParts are what controllers work with.
type controllerParts struct {
	settings *settings
	self     *loopback
	admitter *admitter
	stores   *stores
	api      *api
	etcd     clientv3.KV
}

// controllers work on objects beside the request path. To add one, add a row: what makes
// the function that runs until its context ends, or nil when the settings leave it out.
var controllers = []struct {
	name string
	make func(controllerParts) (func(context.Context), error)
}{
	{"clusterrole-aggregation-controller", newRoleAggregation},
	{"namespace-controller", newNamespaceController},
}

func newControllers(p controllerParts) ([]func(context.Context), error) {
	var list []func(context.Context)
	for _, c := range controllers {
		run, err := c.make(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if run != nil {
			list = append(list, run)
		}
	}
	return list, nil
}

func newRoleAggregation(p controllerParts) (func(context.Context), error) {
	if p.settings.AuthorizationMode != "RBAC" {
		return nil, nil
	}
	roles := clusterroleaggregation.NewClusterRoleAggregation(p.self.informers.Rbac().V1().ClusterRoles(), p.self.client.RbacV1())
	return func(ctx context.Context) { roles.Run(ctx, 2) }, nil
}

func newNamespaceController(p controllerParts) (func(context.Context), error) {
	as := restclient.CopyConfig(p.self.config)
	as.Impersonate.UserName = "system:serviceaccount:kube-system:namespace-controller"
	client, err := kubernetes.NewForConfig(as)
	if err != nil {
		return nil, err
	}
	// Custom resources have no protobuf.
	as.ContentType, as.AcceptContentTypes = "", ""
	objects, err := metadata.NewForConfig(as)
	if err != nil {
		return nil, err
	}
	builtins := builtinCollections(p.api.static, p.settings.EtcdPrefix, p.stores.places)
	options := namespaces.Options{
		Collections: func() []namespaces.Collection {
			return append(slices.Clip(builtins), customCollections(p.api.custom.Versions(), p.settings.EtcdPrefix)...)
		},
		Etcd: p.etcd, Client: client, Metadata: objects, Informers: p.self.informers,
	}
	if p.settings.sharesEtcd() {
		options.Settle = replicaSettle
	} else {
		options.Creating = p.admitter.creations.UnderWay
	}
	c, err := namespaces.New(options)
	if err != nil {
		return nil, err
	}
	return c.Run, nil
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
