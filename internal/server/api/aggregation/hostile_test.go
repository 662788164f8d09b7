package aggregation

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
)

// refusals returns the number of refused responses of the server of the resource things.
func refusals(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "gatehouse_aggregator_refused_answers_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == "v1.hostile.example.com" {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// S22.23: lists that arrive slowly, and small responses that decompress to large ones, are refused
// and counted.
func TestRefusedAnswersAreCounted(t *testing.T) {
	defer func(before time.Duration) { longestRead = before }(longestRead)
	for name, c := range map[string]struct {
		within time.Duration
		answer http.HandlerFunc
	}{
		"a list that comes drop by drop": {time.Second, func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[{}`)
			for req.Context().Err() == nil {
				_, _ = io.WriteString(w, ",{}")
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}},
		"a list that is small as long as it is packed": {time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"`)
			endless(z, filler)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			longestRead = c.within
			client, _ := reader(t, func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				c.answer(w, req)
			})
			before := refusals(t)
			_, err := client.Resource(things).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
			if err == nil || !strings.Contains(err.Error(), `APIService "v1.hostile.example.com"`) {
				t.Errorf("got %.300v", err)
			}
			if after := refusals(t); after <= before {
				t.Errorf("%v refused answers are counted, %v before", after, before)
			}
		})
	}
}

// answered is a transport with one answer.
type answered http.Header

func (a answered) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header(a).Clone(), Body: http.NoBody}, nil
}

// S22.23: a server cannot make its reader wait for a day.
func TestRetryAfterIsBounded(t *testing.T) {
	_, p := reader(t, http.NotFound)
	for given, want := range map[string]string{"": "", "1": "1", "86400": "10", "Wed, 21 Oct 2065 07:28:00 GMT": "10"} {
		header := http.Header{}
		if given != "" {
			header.Set("Retry-After", given)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/apis/hostile.example.com/v1/things", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &read{next: answered(header), proxy: p, path: req.URL.Path}
		response, err := r.send(req, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Header.Get("Retry-After"); got != want {
			t.Errorf("%q became %q, want %q", given, got, want)
		}
		response.Body.Close()
	}
}

// S22.23: a group version with more resources than are followed is left out, and is shown again
// when it has fewer.
func TestResourcesOfAGroupVersionAreBounded(t *testing.T) {
	var shownVersions []discovery.Version
	s := newShown(func(all []discovery.Version) { shownVersions = all })
	gv := schema.GroupVersion{Group: "hostile.example.com", Version: "v1"}
	s.mu.versions[gv] = discovery.Version{GroupVersion: gv}
	long := strings.Repeat("n", maxName+1)
	for _, c := range []struct {
		name      string
		resources []apidiscoveryv2.APIResourceDiscovery
		stale     bool
	}{
		{"as many as are served", make([]apidiscoveryv2.APIResourceDiscovery, maxResources), false},
		{"one more", make([]apidiscoveryv2.APIResourceDiscovery, maxResources+1), true},
		{"one", make([]apidiscoveryv2.APIResourceDiscovery, 1), false},
		{"a name as long as it may be", []apidiscoveryv2.APIResourceDiscovery{{Resource: long[1:]}}, false},
		{"a longer name", []apidiscoveryv2.APIResourceDiscovery{{}, {Resource: long}}, true},
		{"a longer singular name", []apidiscoveryv2.APIResourceDiscovery{{SingularResource: long}}, true},
		{"a longer kind", []apidiscoveryv2.APIResourceDiscovery{{ResponseKind: &metav1.GroupVersionKind{Kind: long}}}, true},
	} {
		before := refusals(t)
		told{shown: s}.AddGroupVersion(gv.Group, apidiscoveryv2.APIVersionDiscovery{
			Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: c.resources,
		})
		want := len(c.resources)
		if c.stale {
			want = 0
		}
		if v := shownVersions[0]; len(v.Aggregated) != want || v.Stale != c.stale {
			t.Errorf("%s: %d are shown, stale: %v", c.name, len(v.Aggregated), v.Stale)
		}
		if counted := refusals(t) > before; counted != c.stale {
			t.Errorf("%s: counted: %v", c.name, counted)
		}
	}
}
