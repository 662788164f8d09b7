package discovery

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// picture has the groups, versions and resources of one moment, in every form that clients request.
// It is immutable.
type picture struct {
	// legacy has the handlers of all paths, without trailing slashes.
	legacy map[string]http.Handler
	// paths are the paths of groups and versions, also of versions of other servers. Those
	// servers answer requests for them.
	paths []string
	// aggregated has the aggregated answers at /api and /apis.
	aggregated map[string]*aggregate
}

// aggregate is one response with everything below a path.
type aggregate struct {
	list *apidiscoveryv2.APIGroupDiscoveryList
	etag string
}

const (
	core  = "/api"
	named = "/apis"
)

// pathOf returns the path of a group.
func pathOf(group string) string {
	if group == "" {
		return core
	}
	return named + "/" + group
}

func newPicture(groups []group, addresses discovery.Addresses) (*picture, error) {
	p := &picture{
		legacy: map[string]http.Handler{
			core: discovery.NewLegacyRootAPIHandler(addresses, codecs, core),
		},
		aggregated: map[string]*aggregate{core: {}, named: {}},
	}
	roots := groupList{}
	lists := map[string][]apidiscoveryv2.APIGroupDiscovery{}
	for _, g := range groups {
		root, path := named, pathOf(g.name)
		if g.name == "" {
			root = core
		}
		all := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
		one := metav1.APIGroup{Name: g.name}
		for _, v := range g.versions {
			shown, err := v.aggregated()
			if err != nil {
				return nil, err
			}
			all.Versions = append(all.Versions, shown)
			one.Versions = append(one.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.GroupVersion.String(), Version: v.Version})
			p.paths = append(p.paths, path+"/"+v.Version)
			if !v.Remote {
				p.legacy[path+"/"+v.Version] = discovery.NewAPIVersionHandler(codecs, v.GroupVersion, lister(v.Resources))
			}
		}
		lists[root] = append(lists[root], all)
		if g.name != "" {
			one.PreferredVersion = one.Versions[0]
			roots = append(roots, one)
			p.legacy[path] = discovery.NewAPIGroupHandler(codecs, one)
			p.paths = append(p.paths, path)
		}
	}
	p.legacy[named] = roots
	for root, a := range p.aggregated {
		a.list = &apidiscoveryv2.APIGroupDiscoveryList{Items: lists[root]}
		data, err := json.Marshal(a.list)
		if err != nil {
			return nil, fmt.Errorf("discovery of %s: %w", root, err)
		}
		sum := sha256.Sum256(data)
		a.etag = hex.EncodeToString(sum[:])
	}
	return p, nil
}

// groupList answers at /apis as the aggregator of kube-apiserver does: without the addresses of the
// server, and with an apiVersion, which the handler of k8s.io/apiserver leaves out.
type groupList []metav1.APIGroup

// ServeHTTP implements http.Handler.
func (l groupList) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	responsewriters.WriteObjectNegotiated(codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, req, http.StatusOK, &metav1.APIGroupList{Groups: l}, false)
}

// aggregated returns the entry of the version in aggregated discovery.
func (v *Version) aggregated() (apidiscoveryv2.APIVersionDiscovery, error) {
	shown := apidiscoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	if v.Stale {
		shown.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
	}
	if v.Remote {
		shown.Resources = v.Aggregated
		return shown, nil
	}
	resources := slices.Clone(v.Resources)
	for i := range resources {
		// As upstream shows custom resources here: every kind has its group version.
		if r := &resources[i]; v.custom && r.Version == "" {
			r.Group, r.Version = v.Group, v.Version
		}
	}
	var err error
	if shown.Resources, err = endpoints.ConvertGroupVersionIntoToDiscovery(resources); err != nil {
		return shown, fmt.Errorf("discovery of %s: %w", v.GroupVersion, err)
	}
	return shown, nil
}

// lister lists fixed resources. An empty list is shown as an empty list.
func lister(resources []metav1.APIResource) discovery.APIResourceLister {
	if resources == nil {
		resources = []metav1.APIResource{}
	}
	return discovery.APIResourceListerFunc(func() []metav1.APIResource { return resources })
}
