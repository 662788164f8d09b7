package discovery

import (
	"cmp"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// Version has the served resources of one group version.
type Version struct {
	schema.GroupVersion
	// Resources are its resources and subresources, such as "pods" and
	// "pods/status". Group and Version of an entry are empty where its kind is
	// of this group version.
	Resources []metav1.APIResource
	// GroupPriority and VersionPriority order groups, and the versions of a group: the highest
	// comes first. The priority of a group is the highest priority of its versions.
	GroupPriority, VersionPriority int32
	// Remote means that another server serves the version: Aggregated then has its resources in place
	// of Resources, as that server listed them. Stale means that the server did not answer when it was
	// last asked.
	Remote, Stale bool
	Aggregated    []apidiscoveryv2.APIResourceDiscovery
	// custom marks versions of custom resources.
	custom bool
}

// Resources lists the discovery entries of the endpoints of one group version.
func Resources(endpoints []*resources.Endpoint) []metav1.APIResource {
	list := make([]metav1.APIResource, 0, len(endpoints))
	for _, e := range endpoints {
		list = append(list, e.Discovery)
	}
	return list
}

// VersionsOf lists the group versions of endpoints. The endpoints are in order.
func VersionsOf(endpoints []*resources.Endpoint) []Version {
	var list []Version
	for i := 0; i < len(endpoints); {
		gv := endpoints[i].Scope.Resource.GroupVersion()
		end := i
		for end < len(endpoints) && endpoints[end].Scope.Resource.GroupVersion() == gv {
			end++
		}
		list = append(list, Version{GroupVersion: gv, Resources: Resources(endpoints[i:end])})
		i = end
	}
	return list
}

// group is one group with all its versions, preferred first.
type group struct {
	name     string
	versions []Version
}

// priority is the highest priority of the versions.
func (g group) priority() int32 {
	return slices.MaxFunc(g.versions, func(a, b Version) int { return cmp.Compare(a.GroupPriority, b.GroupPriority) }).GroupPriority
}

// merge groups the versions of all sources. A remote version replaces the same version of this server,
// and a custom version never replaces a built-in one.
func merge(builtin, custom, remote []Version) []group {
	var groups []group
	known := map[schema.GroupVersion]bool{}
	for _, v := range remote {
		known[v.GroupVersion] = true
	}
	add := func(v Version) {
		i := slices.IndexFunc(groups, func(g group) bool { return g.name == v.Group })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{name: v.Group})
		}
		groups[i].versions = append(groups[i].versions, v)
	}
	others := slices.Clone(remote)
	for _, v := range slices.Concat(builtin, custom) {
		if known[v.GroupVersion] {
			continue
		}
		known[v.GroupVersion] = true
		if v.custom {
			others = append(others, v)
		} else {
			add(v)
		}
	}
	slices.SortStableFunc(others, func(a, b Version) int { return cmp.Compare(a.Group, b.Group) })
	for _, v := range others {
		add(v)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(b.priority(), a.priority()) })
	for _, g := range groups {
		slices.SortStableFunc(g.versions, func(a, b Version) int { return cmp.Compare(b.VersionPriority, a.VersionPriority) })
	}
	return groups
}
