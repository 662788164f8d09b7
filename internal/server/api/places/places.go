package places

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lazyinformer"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
)

// Places says where objects are in etcd.
type Places struct {
	// Root is the prefix of all keys.
	Root string
	// Static are the resources that are always there, and Storage says where each of them is.
	Static  resources.Static
	Storage serverstorage.StorageFactory
}

// Prefixes says where the objects of each resource are. The objects of remote group versions
// are not in this etcd.
func (p Places) Prefixes(remote func() []schema.GroupVersion) lazyinformer.Prefix {
	root := p.Root
	builtin := map[schema.GroupResource]string{}
	groups := map[string]bool{}
	for gvr, endpoints := range p.Static {
		groups[gvr.Group] = true
		e := endpoints[""]
		if e == nil {
			continue
		}
		if _, stored := e.Storage.(rest.CollectionDeleter); stored {
			builtin[gvr.GroupResource()] = path.Join(root, p.Storage.ResourcePrefix(gvr.GroupResource())) + "/"
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
		// Custom resources, also those of a definition that was deleted or does not exist yet.
		return path.Join(root, gr.Group, gr.Resource) + "/"
	}
}

// Defined returns a function that reports whether the objects of a resource are, or would be,
// custom objects that this server stores.
func (p Places) Defined(remote func() []schema.GroupVersion) func(schema.GroupResource) bool {
	groups := map[string]bool{aggregation.GroupVersion.Group: true}
	for gvr := range p.Static {
		groups[gvr.Group] = true
	}
	return func(gr schema.GroupResource) bool {
		return !groups[gr.Group] && !slices.ContainsFunc(remote(), func(gv schema.GroupVersion) bool { return gv.Group == gr.Group })
	}
}

// Builtin lists the built-in resources that a namespace can contain,
// each once: versions and groups that share storage count as one.
func (p Places) Builtin() []namespaces.Collection {
	var list []namespaces.Collection
	seen := map[string]bool{}
	for gvr, endpoints := range p.Static {
		e := endpoints[""]
		if e == nil || !e.Discovery.Namespaced {
			continue
		}
		if _, ok := e.Storage.(rest.CollectionDeleter); !ok {
			continue
		}
		key := path.Join(p.Root, p.Storage.ResourcePrefix(schema.GroupResource{Group: gvr.Group, Resource: gvr.Resource}))
		if !seen[key] {
			seen[key] = true
			list = append(list, namespaces.Collection{GroupVersionResource: gvr, Prefix: key})
		}
	}
	return list
}

// Custom lists the custom resources that a namespace can contain, by their preferred version.
func (p Places) Custom(versions []customresources.Version) []namespaces.Collection {
	var list []namespaces.Collection
	seen := map[schema.GroupResource]bool{}
	for _, v := range versions {
		for _, r := range v.Resources {
			gvr := v.GroupVersion.WithResource(r.Name)
			if !r.Namespaced || strings.Contains(r.Name, "/") || seen[gvr.GroupResource()] {
				continue
			}
			seen[gvr.GroupResource()] = true
			list = append(list, namespaces.Collection{GroupVersionResource: gvr, Prefix: path.Join(p.Root, gvr.Group, gvr.Resource)})
		}
	}
	return list
}
