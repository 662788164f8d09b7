package controllers

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// steady remembers the kinds of servers that do not answer. Controllers list all kinds again after
// each change of the kinds. Without steady, they would drop the kinds of such a server, and follow
// them twice when the server answers again. Use a steady for one of its methods only.
type steady struct {
	discovery.ServerResourcesInterface

	mu   sync.Mutex
	last map[schema.GroupVersion]*metav1.APIResourceList
}

// ServerPreferredResources implements discovery.ServerResourcesInterface.
func (s *steady) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return s.complete(s.ServerResourcesInterface.ServerPreferredResources())
}

// ServerPreferredNamespacedResources implements discovery.ServerResourcesInterface.
func (s *steady) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return s.complete(s.ServerResourcesInterface.ServerPreferredNamespacedResources())
}

// complete adds the last known lists of the groups that failed, according to err, and returns
// err.
func (s *steady) complete(lists []*metav1.APIResourceList, err error) ([]*metav1.APIResourceList, error) {
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return lists, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, list := range lists {
		if gv, err := schema.ParseGroupVersion(list.GroupVersion); err == nil {
			now[gv] = list
		}
	}
	for gv := range failed {
		if list, known := s.last[gv]; known && now[gv] == nil {
			now[gv] = list
			lists = append(lists, list)
		}
	}
	s.last = now
	return lists, err
}
