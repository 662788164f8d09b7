package discovery

import (
	"cmp"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// Version has the resources that are served in one group version.
type Version struct {
	schema.GroupVersion
	// Resources are its resources and subresources, such as "pods" and
	// "pods/status". Group and Version of an entry are empty where its kind is
	// of this group version.
	Resources []metav1.APIResource
	// Aggregated has some of the resources, or none, in the form of aggregated discovery.
	// Aggregated discovery shows the others as Resources has them.
	Aggregated []apidiscoveryv2.APIResourceDiscovery
	// GroupPriority and VersionPriority order groups, and the versions of a group: the highest
	// comes first. The priority of a group is the highest one of its versions.
	GroupPriority, VersionPriority int32
	// Remote says that another server serves the version: Aggregated then has all its resources,
	// as that server listed them. Stale says that the server did not answer when it was last
	// asked.
	Remote, Stale bool
}

// Resources lists what discovery shows of the endpoints of one group version.
func Resources(endpoints []*resources.Endpoint) []metav1.APIResource {
	list := make([]metav1.APIResource, 0, len(endpoints))
	for _, e := range endpoints {
		list = append(list, e.Discovery)
	}
	return list
}

// group is one group with all its versions, preferred first.
type group struct {
	name     string
	versions []Version
}

// priority is the highest one of the versions.
func (g group) priority() int32 {
	return slices.MaxFunc(g.versions, func(a, b Version) int { return cmp.Compare(a.GroupPriority, b.GroupPriority) }).GroupPriority
}

// merge groups the versions of all sources. It does not write to memory that the sources share
// with the result. A remote version replaces the same version of this server.
func merge(builtin, custom, remote []Version) []group {
	var groups []group
	hidden := map[schema.GroupVersion]bool{}
	for _, v := range remote {
		hidden[v.GroupVersion] = true
	}
	for _, v := range builtin {
		if !hidden[v.GroupVersion] {
			groups = add(groups, v)
		}
	}
	others := slices.Clone(remote)
	for _, v := range custom {
		if !hidden[v.GroupVersion] {
			others = append(others, v)
		}
	}
	slices.SortStableFunc(others, func(a, b Version) int { return cmp.Compare(a.Group, b.Group) })
	for _, v := range others {
		groups = add(groups, v)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(b.priority(), a.priority()) })
	for _, g := range groups {
		slices.SortStableFunc(g.versions, func(a, b Version) int { return cmp.Compare(b.VersionPriority, a.VersionPriority) })
	}
	return groups
}

func add(groups []group, v Version) []group {
	i := slices.IndexFunc(groups, func(g group) bool { return g.name == v.Group })
	if i < 0 {
		return append(groups, group{name: v.Group, versions: []Version{v}})
	}
	g := &groups[i]
	j := slices.IndexFunc(g.versions, func(have Version) bool { return have.Version == v.Version })
	if j < 0 {
		g.versions = append(g.versions, v)
		return groups
	}
	list := slices.Clone(g.versions[j].Resources)
	shown := slices.Clone(g.versions[j].Aggregated)
	for _, a := range v.Aggregated {
		if !slices.ContainsFunc(list, func(have metav1.APIResource) bool { return have.Name == a.Resource }) {
			shown = append(shown, a)
		}
	}
	g.versions[j].Aggregated = shown
	for _, r := range v.Resources {
		if !slices.ContainsFunc(list, func(have metav1.APIResource) bool { return have.Name == r.Name }) {
			list = append(list, r)
		}
	}
	g.versions[j].Resources = list
	return groups
}
