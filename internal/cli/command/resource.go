package command

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// Of returns a client for the objects of the resource, of a namespace if they are in namespaces.
func (r Resource) Of(client dynamic.Interface, namespace string) dynamic.ResourceInterface {
	if r.Namespaced {
		return client.Resource(r.GroupVersionResource).Namespace(namespace)
	}
	return client.Resource(r.GroupVersionResource)
}
