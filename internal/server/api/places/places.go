package places

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lazyinformer"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
)

// Places finds the objects of resources in etcd.
type Places struct {
	// Root is the prefix of all keys.
	Root string
	// Static are the resources that always exist, and Storage has the location of each.
	Static  resources.Static
	Storage serverstorage.StorageFactory
}

// Elsewhere returns a function that reports whether other servers have the objects of a group, or
// had them when the function was called before. An informer outlives its APIService for a while. If
// this etcd answered its next list, which finds nothing here, the objects would look deleted, and
// the garbage collector would delete their dependents (S22.16).
func Elsewhere(remote func() []schema.GroupVersion) func(group string) bool {
	var once sync.Map
	return func(group string) bool {
		if _, known := once.Load(group); known {
			return true
		}
		now := slices.ContainsFunc(remote(), func(gv schema.GroupVersion) bool { return gv.Group == group })
		if now {
			once.Store(group, true)
		}
		return now
	}
}

// Prefixes returns a function that returns the prefix of the objects of a resource. Objects of
// other servers are not in this etcd.
func (p Places) Prefixes(elsewhere func(group string) bool) lazyinformer.Prefix {
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
	builtin[aggregation.GroupVersion.WithResource(aggregation.Resource).GroupResource()] = path.Join(root, aggregation.Prefix) + "/"
	builtin[definitions] = placeOfDefinitions(root)
	return func(gr schema.GroupResource) string {
		if groups[gr.Group] {
			return builtin[gr]
		}
		if elsewhere(gr.Group) {
			return ""
		}
		// The resource is custom, possibly of a CRD that was deleted or does not exist yet.
		return path.Join(root, gr.Group, gr.Resource) + "/"
	}
}

// definitions is the resource of CRDs.
var definitions = apiextensions.Resource("customresourcedefinitions")

// Definitions sends the requests of the informer of CRDs to etcd, below root, and all other
// requests to next.
func Definitions(root string, etcd lazyinformer.Etcd, values *encryption.Transformers, next http.RoundTripper) http.RoundTripper {
	return &lazyinformer.Transport{
		Next: next, Etcd: etcd, Values: values,
		Prefix: func(gr schema.GroupResource) string {
			if gr == definitions {
				return placeOfDefinitions(root)
			}
			return ""
		},
		Whole: func(gr schema.GroupResource) string {
			if gr == definitions {
				return "CustomResourceDefinition"
			}
			return ""
		},
	}
}

func placeOfDefinitions(root string) string {
	return path.Join(root, definitions.Group, definitions.Resource) + "/"
}

// Read returns a function that reports whether the metadata of a resource's objects may be read
// from etcd: the objects are, or would be, custom objects that this server stores, or CRDs, which
// are expensive to decode.
func (p Places) Read(elsewhere func(group string) bool) func(schema.GroupResource) bool {
	groups := map[string]bool{aggregation.GroupVersion.Group: true}
	for gvr := range p.Static {
		groups[gvr.Group] = true
	}
	return func(gr schema.GroupResource) bool {
		return gr == definitions || !groups[gr.Group] && !elsewhere(gr.Group)
	}
}

// Builtin lists the built-in resources that a namespace can contain, each once: versions and groups
// that share storage count as the same resource.
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
