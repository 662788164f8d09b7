package command

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// Resource is a kind of objects of a server.
type Resource struct {
	schema.GroupVersionResource
	// Namespaced reports whether the objects are in namespaces.
	Namespaced bool
}

// ResourceNamed returns the resource that a user's name of a kind stands for.
func ResourceNamed(mapper meta.RESTMapper, name string) (Resource, error) {
	gvr, err := mapper.ResourceFor(schema.ParseGroupResource(strings.ToLower(name)).WithVersion(""))
	if err != nil {
		return Resource{}, err
	}
	kind, err := mapper.KindFor(gvr)
	if err != nil {
		return Resource{}, err
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return Resource{}, err
	}
	return Resource{mapping.Resource, mapping.Scope.Name() == meta.RESTScopeNameNamespace}, nil
}

// Served returns the resources of a server that have a verb. Those that cannot be discovered are left out.
func Served(client discovery.DiscoveryInterface, verb string) ([]Resource, error) {
	groups, err := client.ServerPreferredResources()
	if len(groups) == 0 && err != nil {
		return nil, err
	}
	var list []Resource
	for _, g := range groups {
		gv, err := schema.ParseGroupVersion(g.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range g.APIResources {
			if slices.Contains(r.Verbs, verb) && !strings.Contains(r.Name, "/") {
				list = append(list, Resource{gv.WithResource(r.Name), r.Namespaced})
			}
		}
	}
	return list, nil
}

// Of returns a client for the objects of the resource, of a namespace if they are in namespaces.
func (r Resource) Of(client dynamic.Interface, namespace string) dynamic.ResourceInterface {
	if r.Namespaced {
		return client.Resource(r.GroupVersionResource).Namespace(namespace)
	}
	return client.Resource(r.GroupVersionResource)
}
