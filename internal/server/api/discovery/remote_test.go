package discovery_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
)

// S22.14: the list of groups, which clients older than aggregated discovery read, equals the list
// of kube-apiserver's aggregator.
func TestTheListOfGroupsIsTheAggregators(t *testing.T) {
	_, s := serve(t, small()[:2])
	res, err := http.Get(s.URL + "/apis")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got map[string]any
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	version := map[string]any{"groupVersion": "apps/v1", "version": "v1"}
	want := map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{
		map[string]any{"name": "apps", "versions": []any{version}, "preferredVersion": version},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// S22.14: in both forms of discovery, group versions of other servers are ordered by their
// priorities, hide the same group versions of this server, and are stale while their server does
// not answer.
func TestRemoteVersionsStandByTheirPriorities(t *testing.T) {
	builtin := small()
	for i := range builtin {
		builtin[i].GroupPriority, builtin[i].VersionPriority = 17000-int32(i), 10-int32(i)
	}
	h, s := serve(t, builtin)
	verbs := metav1.Verbs{"get", "list"}
	version := func(group, version string, g, v int32, resources ...string) discovery.Version {
		out := discovery.Version{GroupVersion: schema.GroupVersion{Group: group, Version: version}, GroupPriority: g, VersionPriority: v, Remote: true, Stale: len(resources) == 0}
		for _, r := range resources {
			out.Aggregated = append(out.Aggregated, apidiscoveryv2.APIResourceDiscovery{
				Resource: r, ResponseKind: &metav1.GroupVersionKind{Group: group, Version: version, Kind: "Kind"}, Scope: apidiscoveryv2.ScopeNamespace, SingularResource: "one", Verbs: verbs,
			})
		}
		return out
	}
	if err := h.SetCustom([]discovery.Version{{GroupVersion: schema.GroupVersion{Group: "custom.example.com", Version: "v1"}, GroupPriority: 1000, VersionPriority: 100}}); err != nil {
		t.Fatal(err)
	}
	if err := h.SetRemote([]discovery.Version{
		version("b.example.com", "v1", 1000, 10, "things"), version("b.example.com", "v2", 1000, 20),
		version("first.example.com", "v1", 20000, 1, "things"), version("apps", "v1beta2", 100, 50, "deployments"),
	}); err != nil {
		t.Fatal(err)
	}
	client, err := clientdiscovery.NewDiscoveryClientForConfig(&restclient.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.WithLegacy().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	var order []string
	for _, g := range list.Groups {
		order = append(order, g.Name)
		for _, v := range g.Versions {
			got[g.Name] = append(got[g.Name], v.Version)
		}
	}
	// The core group comes first, because it comes from /api.
	if diff := cmp.Diff([]string{"", "first.example.com", "apps", "extensions", "b.example.com", "custom.example.com"}, order); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"v1beta2", "v1"}, got["apps"]); diff != "" {
		t.Errorf("versions of a group of both servers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"v2", "v1"}, got["b.example.com"]); diff != "" {
		t.Errorf("versions of a group of another server (-want +got):\n%s", diff)
	}
	_, resources, failed, err := client.GroupsAndMaybeResources()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(resources[schema.GroupVersion{Group: "apps", Version: "v1beta2"}].APIResources); n != 1 {
		t.Errorf("%d resources in the version that another server has", n)
	}
	if failed[schema.GroupVersion{Group: "b.example.com", Version: "v2"}] == nil || len(failed) != 1 {
		t.Errorf("stale: %v", failed)
	}
	if err := h.SetRemote(nil); err != nil {
		t.Fatal(err)
	}
	if h.Handles("/apis/b.example.com") || !h.Handles("/apis/apps/v1beta2") {
		t.Error("after the other servers are gone, their groups are still there, or those of this server are not")
	}
}
