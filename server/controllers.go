package server

import (
	"context"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/server/customresources"
	"github.com/gatehouse-dev/gatehouse/server/namespaces"
	"github.com/gatehouse-dev/gatehouse/server/resources"
)

// replicaSettle is how long other replicas may take to hear of a new kind, or that a
// namespace is being deleted.
const replicaSettle = 2 * time.Second

// addControllers sets up what works on objects beside the request path: the
// deletion of namespaces, and the aggregation of cluster roles.
func (a *assembly) addControllers(etcd clientv3.KV, collections func() []namespaces.Collection) error {
	if a.options.AuthorizationMode == "RBAC" {
		roles := clusterroleaggregation.NewClusterRoleAggregation(a.informers.Rbac().V1().ClusterRoles(), a.client.RbacV1())
		a.controllers = append(a.controllers, func(ctx context.Context) { roles.Run(ctx, 2) })
	}
	as := restclient.CopyConfig(a.loopback)
	as.Impersonate.UserName = "system:serviceaccount:kube-system:namespace-controller"
	client, err := kubernetes.NewForConfig(as)
	if err != nil {
		return err
	}
	// Custom resources have no protobuf.
	as.ContentType, as.AcceptContentTypes = "", ""
	objects, err := metadata.NewForConfig(as)
	if err != nil {
		return err
	}
	options := namespaces.Options{
		Collections: collections, Etcd: etcd, Client: client, Metadata: objects, Informers: a.informers,
	}
	if a.options.sharesEtcd() {
		options.Settle = replicaSettle
	} else {
		options.Creating = a.judge.creations.UnderWay
	}
	c, err := namespaces.New(options)
	if err != nil {
		return err
	}
	a.controllers = append(a.controllers, c.Run)
	return nil
}

// fenced returns the client with which objects are stored. A server alone on its etcd
// knows of all creates, and a namespace that is being deleted waits for them. Servers
// that share an etcd refuse what comes too late.
func (a *assembly) fenced(inner etcdkubernetes.Interface, etcd clientv3.KV) etcdkubernetes.Interface {
	if !a.options.sharesEtcd() || !a.options.runs(admission.NamespaceLifecycleName) {
		return inner
	}
	return namespaces.Fence(inner, etcd, a.options.EtcdPrefix, legacyscheme.Codecs.UniversalDeserializer())
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
