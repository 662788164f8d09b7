package initialization

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/initializer"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// memory returns the size of the server's heap and stacks: the minimum of several measurements, each after a
// garbage collection. Background work may be included in each.
func (s *site) memory() float64 {
	s.t.Helper()
	least := math.Inf(1)
	for range 5 {
		least = min(least, s.memoryNow())
	}
	return least
}

func (s *site) memoryNow() float64 {
	s.t.Helper()
	s.Get("/debug/pprof/heap?gc=1")
	s.Get("/debug/pprof/heap?gc=1")
	sum := 0.0
	for line := range strings.Lines(string(s.Get("/metrics").Raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "go_memstats_heap_alloc_bytes" || name == "go_memstats_stack_inuse_bytes" {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// creators sends POSTs, all at the same time or a few at a time, until each response has the wanted code or
// 504.
func (s *site) creators(client *harness.HTTP, count, atOnce int, prefix, query string, code int) *sync.WaitGroup {
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range count {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			for {
				got, err := client.Try(context.Background(), "POST", s.path("configmaps")+query, body("configmaps", fmt.Sprint(prefix, i)))
				if err == nil && got == http.StatusTooManyRequests {
					continue
				}
				// The time limit of a request is 34 s, which may be too short for some on a busy machine.
				if err != nil || got != code && got != http.StatusGatewayTimeout {
					s.t.Errorf("%s%d: %d, %v", prefix, i, got, err)
				}
				return
			}
		})
	}
	return &group
}

// awaitWaiting waits until the given number of creates wait.
func (s *site) awaitWaiting(count int) {
	s.t.Helper()
	const gauge = `gatehouse_initializers_waiting_creates{group="",resource="configmaps"} `
	harness.Eventually(s.t, fmt.Sprint(count, " creators wait"), func() error {
		_, rest, _ := strings.Cut(string(s.Get("/metrics").Raw), gauge)
		if value, _, _ := strings.Cut(rest, "\n"); value != fmt.Sprint(count) {
			return fmt.Errorf("%s wait", value)
		}
		return nil
	})
}

// fewWrites are the flags of a server that handles few writes at once, and gives up releases soon.
var fewWrites = []string{"--initializer-timeout", "10m", "--initializer-release-timeout", "2s", "--admission-consistency", "strict", "--max-mutating-requests-inflight", "10"}

// More creates wait than the server handles writes at once, and the initializer's requests are still
// admitted.
func TestCreatorsGiveWay(t *testing.T) {
	t.Parallel()
	const count = 60
	s := newSite(t, harness.Sole(t, fewWrites...))
	s.register("one", "configmaps", "a", "a.example.com")
	alice := s.as("alice", "configmaps")
	s.as("bob", "configmaps", "initialize")
	waiting := s.creators(alice, count, count, "o", "", http.StatusCreated)
	s.awaitWaiting(count)
	admin := s.Admin
	s.Admin = s.As("bob")
	s.run(initializer.Options{Name: "a.example.com", Namespace: s.ns, Initialize: mark("a")})
	s.Admin = admin
	waiting.Wait()
}

var crowd = flag.Int("creators", 1000, "how many creators wait in TestCreatorsWaitCheaply")

// Many creates wait at once; the handlers of their requests have returned. Package initialization measures
// the memory of waiting itself; this test measures the whole request, most of which is HTTP.
func TestCreatorsWaitCheaply(t *testing.T) {
	speed.Long(t)
	// It is 18 with 5,000 creates and 25 with 1,000, and was 33 in an earlier version.
	const limit = 40
	// On a slow machine, reads of registrations may be delayed by the load.
	s := newSite(t, harness.Start(t, "--initializer-timeout", "10m", "--admission-consistency", "strict", "--admission-max-staleness", "1m"))
	s.register("one", "configmaps", "a", "a.example.com")
	each := func(more float64) float64 { return more / float64(*crowd) / 1024 }
	// A single client would open more connections than necessary for so many requests; the memory of
	// connections is not part of the measurement.
	const group = 250
	var clients []*harness.HTTP
	for range *crowd / group {
		c := rest.CopyConfig(s.Server.Admin)
		c.Dial = (&net.Dialer{}).DialContext
		client := s.Server.HTTP(t, c)
		client.Get(s.path("configmaps"))
		clients = append(clients, client)
	}
	empty := s.memory()
	s.creators(s.HTTP, *crowd, 64, "stored", including, http.StatusAccepted).Wait()
	objects := s.memory()
	// All creates start at once, and each may wait for 34 s.
	var waiting []*sync.WaitGroup
	for i, client := range clients {
		waiting = append(waiting, s.creators(client, group, group, fmt.Sprint("waiting", i, "-"), "", http.StatusCreated))
	}
	s.awaitWaiting(len(clients) * group)
	all := s.memory()
	object, creator := each(objects-empty), each(all-objects)
	t.Logf("%d creators wait: %.1f KiB each, of which %.1f KiB are the object", *crowd, creator, object)
	if creator >= limit {
		t.Errorf("a waiting creator costs %.1f KiB", creator)
	}
	s.run(initializer.Options{Name: "a.example.com", Namespace: s.ns, Workers: 16, Initialize: mark("a")})
	for _, group := range waiting {
		group.Wait()
	}
}

// BenchmarkCreate measures creates with and without an initializer that completes immediately.
func BenchmarkCreate(b *testing.B) {
	server := harness.Start(b, "--initializer-timeout", "10m", "--admission-consistency", "strict")
	for _, initialized := range []bool{false, true} {
		b.Run(fmt.Sprintf("initializer=%v", initialized), func(b *testing.B) {
			ns := server.Namespace(b)
			h := server.HTTP(b, nil)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if initialized {
				path := "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations"
				h.Must(http.StatusCreated, "POST", path, configuration("one", "configmaps", "a.example.com"))
				defer h.Must(http.StatusOK, "DELETE", path+"/one", "")
				c, err := initializer.New(initializer.Options{Name: "a.example.com", Config: server.Admin, Resources: resources("configmaps"),
					Initialize: func(context.Context, *unstructured.Unstructured) error { return nil }})
				if err != nil {
					b.Fatal(err)
				}
				go func() { _ = c.Run(ctx) }()
			}
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				code, err := h.Try(ctx, "POST", "/api/v1/namespaces/"+ns+"/configmaps", body("configmaps", fmt.Sprint("o", len(took))))
				if err != nil || code != http.StatusCreated {
					b.Fatal(code, err)
				}
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
		})
	}
}
