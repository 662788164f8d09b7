package stores_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
	"github.com/gatehouse-dev/gatehouse/test/catalogtest"
)

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

func mapper(t *testing.T, client clientdiscovery.DiscoveryInterface) meta.RESTMapper {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		t.Fatal(err)
	}
	return restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), client.WithLegacy(), nil)
}

func builtin(tb testing.TB) []discovery.Version {
	var versions []discovery.Version
	for _, v := range catalogtest.Build(tb) {
		versions = append(versions, discovery.Version{GroupVersion: v.GroupVersion, Resources: discovery.Resources(v.Endpoints)})
	}
	return versions
}

func TestTheCatalogueIsDiscovered(t *testing.T) {
	versions := builtin(t)
	h, err := discovery.New("gatehouse.example.com:6443", versions)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	for name, client := range clients(t, s.URL) {
		t.Run(name, func(t *testing.T) {
			_, lists, err := client.ServerGroupsAndResources()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]metav1.APIResource{}
			for _, l := range lists {
				for _, r := range l.APIResources {
					got[l.GroupVersion+" "+r.Name] = r
				}
			}
			for _, v := range versions {
				for _, want := range v.Resources {
					r, ok := got[v.GroupVersion.String()+" "+want.Name]
					if !ok {
						t.Errorf("%s: %s is missing", v.GroupVersion, want.Name)
						continue
					}
					if want.Kind != r.Kind || want.Namespaced != r.Namespaced {
						t.Errorf("%s: %s is %s, namespaced %t", v.GroupVersion, r.Name, r.Kind, r.Namespaced)
					}
					if diff := cmp.Diff([]any{want.Verbs, want.ShortNames, want.Categories}, []any{r.Verbs, r.ShortNames, r.Categories}); diff != "" {
						t.Errorf("%s: %s (-want +got):\n%s", v.GroupVersion, r.Name, diff)
					}
				}
			}
		})
	}
	expand := mapper(t, clients(t, s.URL)["aggregated, application/json"])
	for short, want := range map[string]schema.GroupVersionResource{
		"po":     {Version: "v1", Resource: "pods"},
		"deploy": {Group: "apps", Version: "v1", Resource: "deployments"},
		"ds":     {Group: "apps", Version: "v1", Resource: "daemonsets"},
		"ev":     {Version: "v1", Resource: "events"},
		"hpa":    {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		"ing":    {Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	} {
		if got, err := expand.ResourceFor(schema.GroupVersionResource{Resource: short}); err != nil || got != want {
			t.Errorf("%s means %v, %v; want %v", short, got, err, want)
		}
	}
}

func BenchmarkSetCustom(b *testing.B) {
	h, err := discovery.New("gatehouse.example.com:6443", builtin(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := h.SetCustom(nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAggregated(b *testing.B) {
	h, err := discovery.New("gatehouse.example.com:6443", builtin(b))
	if err != nil {
		b.Fatal(err)
	}
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	first := httptest.NewRecorder()
	req := httptest.NewRequest("GET", "/apis", nil)
	req.Header.Set("Accept", accept)
	h.ServeHTTP(first, req)
	for name, match := range map[string]string{"unchanged=false": "", "unchanged=true": first.Header().Get("ETag")} {
		b.Run(name, func(b *testing.B) {
			req := httptest.NewRequest("GET", "/apis", nil)
			req.Header.Set("Accept", accept)
			want := http.StatusOK
			if match != "" {
				req.Header.Set("If-None-Match", match)
				want = http.StatusNotModified
			}
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, req)
				if w.Code != want {
					b.Fatalf("got %d", w.Code)
				}
			}
		})
	}
}
