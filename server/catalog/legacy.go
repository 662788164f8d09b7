package catalog

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// legacy lists the versions that upstream's storage still understands and
// kube-apiserver no longer serves: the workload kinds as the examples of Kubernetes 1.15 use them. They
// share the storage of the group they moved to, so an object written through
// one version is read through the others, and a webhook's rule on one of them
// also catches the others when its matchPolicy is Equivalent.
var legacy = []struct {
	version   schema.GroupVersion
	from      schema.GroupVersion
	resources []string
}{
	{
		version:   schema.GroupVersion{Group: "apps", Version: "v1beta2"},
		from:      schema.GroupVersion{Group: "apps", Version: "v1"},
		resources: []string{"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"},
	},
	{
		version:   schema.GroupVersion{Group: "apps", Version: "v1beta1"},
		from:      schema.GroupVersion{Group: "apps", Version: "v1"},
		resources: []string{"controllerrevisions", "deployments", "statefulsets"},
	},
	{
		version:   schema.GroupVersion{Group: "extensions", Version: "v1beta1"},
		from:      schema.GroupVersion{Group: "apps", Version: "v1"},
		resources: []string{"daemonsets", "deployments", "replicasets"},
	},
}

func addLegacy(groups []Group) []Group {
	storages := map[schema.GroupVersion]map[string]rest.Storage{}
	for _, g := range groups {
		for _, v := range g.Versions {
			storages[v.GroupVersion] = v.Storage
		}
	}
	for _, l := range legacy {
		storage := map[string]rest.Storage{}
		for path, s := range storages[l.from] {
			resource, subresource, _ := strings.Cut(path, "/")
			if !slices.Contains(l.resources, resource) {
				continue
			}
			if subresource == "scale" && l.version.Group != l.from.Group {
				s = scaleAs{s.(scaleStorage), l.from}
			}
			storage[path] = s
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == l.version.Group })
		if i < 0 {
			groups = append(groups, Group{Name: l.version.Group})
			i = len(groups) - 1
		}
		groups[i].Versions = append(groups[i].Versions, Version{GroupVersion: l.version, Storage: storage, Unadvertised: true})
	}
	return groups
}
