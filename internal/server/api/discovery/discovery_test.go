package discovery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
)

const address = "gatehouse.example.com:6443"

// small is a server with a resource that two of its groups have, and a group
// with two versions.
func small() []discovery.Version {
	verbs := metav1.Verbs{"get", "list"}
	deployments := metav1.APIResource{Name: "deployments", SingularName: "deployment", Namespaced: true, Kind: "Deployment", Verbs: verbs, ShortNames: []string{"deploy"}, Categories: []string{"all"}}
	scale := metav1.APIResource{Name: "deployments/scale", Namespaced: true, Group: "autoscaling", Version: "v1", Kind: "Scale", Verbs: verbs}
	return []discovery.Version{
		{GroupVersion: schema.GroupVersion{Version: "v1"}, Resources: []metav1.APIResource{
			{Name: "namespaces", SingularName: "namespace", Kind: "Namespace", Verbs: verbs, ShortNames: []string{"ns"}},
			{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod", Verbs: verbs, ShortNames: []string{"po"}},
		}},
		{GroupVersion: schema.GroupVersion{Group: "apps", Version: "v1"}, Resources: []metav1.APIResource{deployments, scale}},
		{GroupVersion: schema.GroupVersion{Group: "apps", Version: "v1beta2"}, Resources: []metav1.APIResource{deployments}},
		{GroupVersion: schema.GroupVersion{Group: "extensions", Version: "v1beta1"}, Resources: []metav1.APIResource{deployments}},
	}
}

func serve(t *testing.T, versions []discovery.Version) (*discovery.Handler, *httptest.Server) {
	t.Helper()
	h, err := discovery.New(address, versions)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return h, s
}

// clients returns a client for each form of discovery.
func clients(t *testing.T, url string) map[string]clientdiscovery.DiscoveryInterface {
	t.Helper()
	list := map[string]clientdiscovery.DiscoveryInterface{}
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		c, err := clientdiscovery.NewDiscoveryClientForConfig(&restclient.Config{Host: url, ContentConfig: restclient.ContentConfig{ContentType: contentType}})
		if err != nil {
			t.Fatal(err)
		}
		list["aggregated, "+contentType] = c
		list["legacy, "+contentType] = c.WithLegacy()
	}
	return list
}

func TestClientsReadEveryForm(t *testing.T) {
	_, s := serve(t, small())
	for name, client := range clients(t, s.URL) {
		t.Run(name, func(t *testing.T) {
			groups, lists, err := client.ServerGroupsAndResources()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range groups {
				got = append(got, fmt.Sprintf("%s preferred %s", g.Name, g.PreferredVersion.Version))
			}
			want := []string{" preferred v1", "apps preferred v1", "extensions preferred v1beta1"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			got = nil
			for _, l := range lists {
				for _, r := range l.APIResources {
					got = append(got, fmt.Sprintf("%s %s %s namespaced=%t", l.GroupVersion, r.Name, r.Kind, r.Namespaced))
				}
			}
			// The client returns aggregated lists in random order.
			slices.Sort(got)
			want = []string{
				"apps/v1 deployments Deployment namespaced=true", "apps/v1 deployments/scale Scale namespaced=true",
				"apps/v1beta2 deployments Deployment namespaced=true",
				"extensions/v1beta1 deployments Deployment namespaced=true",
				"v1 namespaces Namespace namespaced=false", "v1 pods Pod namespaced=true",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}

// mapper finds resources by short names as kubectl does. Shortcuts are read group by group, because
// client-go does not keep the order of aggregated lists.
func mapper(t *testing.T, client clientdiscovery.DiscoveryInterface) meta.RESTMapper {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		t.Fatal(err)
	}
	return restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), client.WithLegacy(), nil)
}

func TestTheFirstGroupOwnsAShortName(t *testing.T) {
	_, s := serve(t, small())
	for name, client := range clients(t, s.URL) {
		t.Run(name, func(t *testing.T) {
			got, err := mapper(t, client).ResourceFor(schema.GroupVersionResource{Resource: "deploy"})
			if err != nil {
				t.Fatal(err)
			}
			want := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
			if got != want {
				t.Errorf("deploy means %v, want %v", got, want)
			}
		})
	}
}

func TestCustomResourcesComeAndGo(t *testing.T) {
	h, s := serve(t, small())
	client := clients(t, s.URL)["aggregated, application/json"]
	widgets := metav1.APIResource{Name: "widgets", SingularName: "widget", Namespaced: true, Kind: "Widget", Verbs: metav1.Verbs{"get"}}
	intruder := metav1.APIResource{Name: "deployments", SingularName: "deployment", Namespaced: false, Kind: "Intruder", Verbs: metav1.Verbs{"get"}}
	version := func(group, version string, resources ...metav1.APIResource) discovery.Version {
		return discovery.Version{GroupVersion: schema.GroupVersion{Group: group, Version: version}, Resources: resources}
	}
	builtin := []string{" v1", "apps v1", "apps v1beta2", "extensions v1beta1"}
	cases := []struct {
		name   string
		custom []discovery.Version
		want   []string
		// apps lists the resources of apps/v1.
		apps []string
	}{
		{
			name:   "custom groups stand behind the built-in ones, by name",
			custom: []discovery.Version{version("zoo.example.com", "v1", widgets), version("example.com", "v2", widgets), version("example.com", "v1", widgets)},
			want:   append(slices.Clone(builtin), "example.com v2", "example.com v1", "zoo.example.com v1"),
			apps:   []string{"deployments", "deployments/scale"},
		},
		{
			name:   "a custom version of a built-in group stands behind its own versions",
			custom: []discovery.Version{version("apps", "v9", widgets)},
			want:   []string{" v1", "apps v1", "apps v1beta2", "apps v9", "extensions v1beta1"},
			apps:   []string{"deployments", "deployments/scale"},
		},
		{
			name:   "a built-in version is not hidden by a custom one",
			custom: []discovery.Version{version("apps", "v1", intruder, widgets)},
			want:   builtin,
			apps:   []string{"deployments", "deployments/scale"},
		},
		{name: "what is gone is gone", want: builtin, apps: []string{"deployments", "deployments/scale"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := h.SetCustom(c.custom); err != nil {
				t.Fatal(err)
			}
			groups, lists, err := client.ServerGroupsAndResources()
			if err != nil {
				t.Fatal(err)
			}
			var got, apps []string
			for _, g := range groups {
				for _, v := range g.Versions {
					got = append(got, g.Name+" "+v.Version)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("versions (-want +got):\n%s", diff)
			}
			for _, l := range lists {
				for _, r := range l.APIResources {
					if r.Kind == "Intruder" {
						t.Errorf("%s: a custom resource hides deployments", l.GroupVersion)
					}
					if l.GroupVersion == "apps/v1" {
						apps = append(apps, r.Name)
					}
				}
			}
			if diff := cmp.Diff(c.apps, apps); diff != "" {
				t.Errorf("resources of apps/v1 (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKindsOfCustomResourcesHaveTheirVersion: aggregated discovery names the group version of each
// kind of a custom resource. For a built-in resource it names the group version only if the kind is
// of another one.
func TestKindsOfCustomResourcesHaveTheirVersion(t *testing.T) {
	h, s := serve(t, small())
	verbs := metav1.Verbs{"get"}
	if err := h.SetCustom([]discovery.Version{{GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"}, Resources: []metav1.APIResource{
		{Name: "widgets", SingularName: "widget", Namespaced: true, Kind: "Widget", Verbs: verbs, ShortNames: []string{"wd"}, Categories: []string{"toys"}},
		{Name: "widgets/status", Namespaced: true, Kind: "Widget", Verbs: verbs},
		{Name: "widgets/scale", Namespaced: true, Group: "autoscaling", Version: "v1", Kind: "Scale", Verbs: verbs},
	}}}); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct{ Resources []json.RawMessage }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, g := range list.Items {
		for _, r := range g.Versions[0].Resources {
			got[g.Metadata.Name] = string(r)
		}
	}
	want := map[string]string{
		"example.com": `{"resource":"widgets","responseKind":{"group":"example.com","version":"v1","kind":"Widget"},"scope":"Namespaced",` +
			`"singularResource":"widget","verbs":["get"],"shortNames":["wd"],"categories":["toys"],"subresources":[` +
			`{"subresource":"status","responseKind":{"group":"example.com","version":"v1","kind":"Widget"},"verbs":["get"]},` +
			`{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get"]}]}`,
		"apps": `{"resource":"deployments","responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced",` +
			`"singularResource":"deployment","verbs":["get","list"],"shortNames":["deploy"],"categories":["all"],"subresources":[` +
			`{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get","list"]}]}`,
	}
	want["extensions"] = strings.Replace(want["apps"], want["apps"][strings.Index(want["apps"], `,"subresources"`):], "}", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

func TestAWrongChangeLeavesEverythingAsItWas(t *testing.T) {
	h, s := serve(t, small())
	err := h.SetCustom([]discovery.Version{{
		GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"},
		Resources: []metav1.APIResource{
			{Name: "widgets", Kind: "Widget", Namespaced: true},
			{Name: "widgets/status", Kind: "Widget"},
		},
	}})
	if err == nil {
		t.Fatal("a subresource in another scope than its resource was accepted")
	}
	if h.Handles("/apis/example.com") || !h.Handles("/apis/apps/v1") {
		t.Error("the refused change is served")
	}
	if res, err := http.Get(s.URL + "/apis"); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("/apis: %v, %v", res, err)
	}
}

func TestRequests(t *testing.T) {
	h, s := serve(t, small())
	const v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	get := func(method, path string, header map[string]string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range header {
			req.Header.Set(k, v)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	etag := get("GET", "/apis", map[string]string{"Accept": v2}).Header.Get("ETag")
	cases := []struct {
		name, method, path string
		header             map[string]string
		status             int
		contentType        string
	}{
		{name: "the root of the core group", path: "/api", status: 200, contentType: "application/json"},
		{name: "a trailing slash", path: "/apis/", status: 200, contentType: "application/json"},
		{name: "one group", path: "/apis/apps", status: 200, contentType: "application/json"},
		{name: "one version", path: "/apis/apps/v1beta2", status: 200, contentType: "application/json"},
		{name: "HEAD", method: "HEAD", path: "/apis/apps/v1", status: 200, contentType: "application/json"},
		{name: "YAML", path: "/api/v1", header: map[string]string{"Accept": "application/yaml"}, status: 200, contentType: "application/yaml"},
		{name: "protobuf", path: "/api/v1", header: map[string]string{"Accept": "application/vnd.kubernetes.protobuf"}, status: 200, contentType: "application/vnd.kubernetes.protobuf"},
		{name: "aggregated v2", path: "/apis", header: map[string]string{"Accept": v2}, status: 200, contentType: v2},
		{
			name: "aggregated v2beta1, which the library has given up", path: "/api",
			header: map[string]string{"Accept": "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"}, status: 200,
			contentType: "application/json",
		},
		{name: "unchanged since", path: "/apis", header: map[string]string{"Accept": v2, "If-None-Match": etag}, status: 304},
		{name: "not what the client has", path: "/apis", header: map[string]string{"Accept": v2, "If-None-Match": `"old"`}, status: 200, contentType: v2},
		{name: "an unknown format", path: "/apis", header: map[string]string{"Accept": "text/html"}, status: 406, contentType: "application/json"},
		{name: "S22.27: an unknown group", path: "/apis/nothing.example.com", status: 404, contentType: "text/plain; charset=utf-8"},
		{name: "S22.27: an unknown version", path: "/apis/apps/v7", status: 404, contentType: "application/json"},
		{name: "S22.27: an unknown version, to protobuf", path: "/apis/apps/v7", header: map[string]string{"Accept": "application/vnd.kubernetes.protobuf"}, status: 404, contentType: "application/vnd.kubernetes.protobuf"},
		{name: "S22.27: an unknown version of the core group", path: "/api/v7", status: 404, contentType: "application/json"},
		{name: "a resource", path: "/apis/apps/v1/deployments", status: 404, contentType: "application/json"},
		{name: "a write", method: "POST", path: "/apis", status: 405, contentType: "text/plain; charset=utf-8"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			method := c.method
			if method == "" {
				method = "GET"
			}
			res := get(method, c.path, c.header)
			if res.StatusCode != c.status || res.Header.Get("Content-Type") != c.contentType {
				t.Errorf("got %d, %q, want %d, %q", res.StatusCode, res.Header.Get("Content-Type"), c.status, c.contentType)
			}
			if known := c.status != 404; h.Handles(c.path) != known {
				t.Errorf("Handles(%q) = %t", c.path, !known)
			}
		})
	}
	t.Run("a change has another ETag", func(t *testing.T) {
		if err := h.SetCustom([]discovery.Version{{GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"}}}); err != nil {
			t.Fatal(err)
		}
		res := get("GET", "/apis", map[string]string{"Accept": v2, "If-None-Match": etag})
		if res.StatusCode != http.StatusOK || res.Header.Get("ETag") == etag {
			t.Errorf("got %d with ETag %s", res.StatusCode, res.Header.Get("ETag"))
		}
	})
}
