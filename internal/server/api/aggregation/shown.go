package aggregation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apiserver"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
)

// shown is the part of discovery about remote group versions (S22.14). Upstream's manager asks the
// remote servers and reports their resources to shown, which replaces upstream's own list.
type shown struct {
	show func([]discovery.Version)

	mu struct {
		sync.Mutex
		// manager is nil until there is an APIService that names a service.
		manager  apiserver.DiscoveryAggregationController
		versions map[schema.GroupVersion]discovery.Version
		// silent are the group versions whose servers did not list their resources when they were
		// last asked.
		silent map[schema.GroupVersion]bool
	}
	// order is held while show is called.
	order sync.Mutex
}

func newShown(show func([]discovery.Version)) *shown {
	s := &shown{show: show}
	s.mu.versions = map[schema.GroupVersion]discovery.Version{}
	s.mu.silent = map[schema.GroupVersion]bool{}
	return s
}

// add adds an APIService, whose server is reached by handler. The group version is shown at once,
// without resources until the server has listed them.
func (s *shown) add(service *apiregistrationv1.APIService, handler http.Handler) {
	gv := schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
	s.edit(gv, func(v discovery.Version, known bool) (discovery.Version, bool) {
		if !known {
			v = discovery.Version{GroupVersion: gv, Remote: true, Stale: true}
		}
		v.GroupPriority, v.VersionPriority = service.Spec.GroupPriorityMinimum, service.Spec.VersionPriority
		return v, true
	})
	s.manager().AddAPIService(service, handler)
}

// manager returns upstream's manager, which is made on first use.
func (s *shown) manager() apiserver.DiscoveryAggregationController {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.manager == nil {
		s.mu.manager = apiserver.NewDiscoveryManager(told{aggregated.NewResourceManager("apis"), s})
	}
	return s.mu.manager
}

func (s *shown) remove(gv schema.GroupVersion, name string) {
	s.edit(gv, func(discovery.Version, bool) (discovery.Version, bool) { return discovery.Version{}, false })
	s.mu.Lock()
	manager := s.mu.manager
	delete(s.mu.silent, gv)
	s.mu.Unlock()
	if manager != nil {
		manager.RemoveAPIService(name)
	}
}

// run asks the remote servers until ctx ends.
func (s *shown) run(ctx context.Context) { s.manager().Run(ctx.Done(), nil) }

// edit changes the discovery entry of a group version, and publishes a change.
func (s *shown) edit(gv schema.GroupVersion, change func(v discovery.Version, known bool) (next discovery.Version, keep bool)) {
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	old, known := s.mu.versions[gv]
	next, keep := change(old, known)
	if keep == known && reflect.DeepEqual(old, next) {
		s.mu.Unlock()
		return
	}
	if keep {
		s.mu.versions[gv] = next
	} else {
		delete(s.mu.versions, gv)
	}
	all := make([]discovery.Version, 0, len(s.mu.versions))
	for _, v := range s.mu.versions {
		all = append(all, v)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b discovery.Version) int {
		return cmp.Or(cmp.Compare(b.GroupPriority, a.GroupPriority), cmp.Compare(a.GroupVersion.Group, b.GroupVersion.Group),
			cmp.Compare(b.VersionPriority, a.VersionPriority), -version.CompareKubeAwareVersionStrings(a.GroupVersion.Version, b.GroupVersion.Version))
	})
	s.show(all)
}

const (
	// maxResources bounds the resources of a group version, because controllers follow each of them
	// (S22.23).
	maxResources = 500
	// maxName bounds the names of a resource, in bytes, like the names of objects.
	maxName = 253
)

// unfit returns the reason why the resources of a group version are not served; empty when they
// are.
func unfit(resources []apidiscoveryv2.APIResourceDiscovery) string {
	if len(resources) > maxResources {
		return fmt.Sprintf("it has %d resources, and at most %d are served", len(resources), maxResources)
	}
	for _, r := range resources {
		if longest := max(len(r.Resource), len(r.SingularResource)); longest > maxName {
			return fmt.Sprintf("it has a resource with a name of %d bytes, and a name has at most %d", longest, maxName)
		}
		if r.ResponseKind != nil && len(r.ResponseKind.Kind) > maxName {
			return fmt.Sprintf("it has a kind with a name of %d bytes, and a name has at most %d", len(r.ResponseKind.Kind), maxName)
		}
	}
	return ""
}

// heard records whether the server of a group version listed its current resources. It reports true
// at the first failure after a success.
func (s *shown) heard(gv schema.GroupVersion, current bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.mu.versions[gv]; !known || current {
		delete(s.mu.silent, gv)
		return false
	}
	before := s.mu.silent[gv]
	s.mu.silent[gv] = true
	return !before
}

// told receives the discovery documents of remote servers from upstream's manager. Other calls of the
// manager reach the embedded list, which is never read: shown learns the same from the APIServices or does
// not need it.
type told struct {
	aggregated.ResourceManager
	*shown
}

// WithSource implements aggregated.ResourceManager.
func (t told) WithSource(aggregated.Source) aggregated.ResourceManager { return t }

// AddGroupVersion implements aggregated.ResourceManager. The manager may report a group version
// that has been removed.
func (t told) AddGroupVersion(group string, said apidiscoveryv2.APIVersionDiscovery) {
	gv := schema.GroupVersion{Group: group, Version: said.Version}
	current := said.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent
	if t.heard(gv, current) {
		klog.ErrorS(nil, "An aggregated server does not list its resources, or not in time; its last list is stale", "groupVersion", gv)
	}
	t.edit(gv, func(v discovery.Version, known bool) (discovery.Version, bool) {
		if !known {
			return v, false
		}
		if why := unfit(said.Resources); why != "" {
			refused().WithLabelValues(gv.Version + "." + gv.Group).Inc()
			klog.ErrorS(errors.New(why), "An aggregated server names resources that are not served; its group version is left out", "groupVersion", gv)
			v.Aggregated, v.Stale = nil, true
		} else {
			v.Aggregated, v.Stale = said.Resources, !current
		}
		return v, true
	})
}
