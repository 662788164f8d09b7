package agreement

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

var (
	seed  = flag.Uint64("seed", 1, "the first `seed`")
	cases = flag.Int("cases", 2000, "how many `cases` to compare, which is requests")
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	// They sleep while they hold a lock that all worlds share.
	utilruntime.ErrorHandlers = nil
	// Webhooks are in memory, whatever the surroundings say about proxies.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		os.Unsetenv(name)
	}
	// What is made once for all worlds is made outside of them.
	cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	os.Exit(m.Run())
}

// tallies count how often decided differences were seen.
type tallies struct {
	sync.Mutex
	seen map[string]int
}

var tally = tallies{seen: map[string]int{}}

func (t *tallies) count(what string) {
	t.Lock()
	defer t.Unlock()
	t.seen[what]++
}

// TestEngineAgreesWithUpstream compares the verdicts, objects, reviews, annotations
// and warnings of both sides on random registrations and requests.
func TestEngineAgreesWithUpstream(t *testing.T) {
	t.Run("worlds", func(t *testing.T) {
		for i := range (*cases + requestsPerWorld - 1) / requestsPerWorld {
			seed := *seed + uint64(i)
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
				t.Parallel()
				for i, c := range run(t, newWorld(seed)) {
					if d := c.differences(); len(d) > 0 {
						t.Errorf("seed %d, request %d:\n%s\n%s", seed, i, show(d), c.yaml())
						return
					}
				}
			})
		}
	})
	for _, what := range slices.Sorted(maps.Keys(tally.seen)) {
		t.Logf("%6d times %s", tally.seen[what], what)
	}
}

// run has both sides judge the requests of a world.
func run(t *testing.T, w *world) (all []comparison) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		upstream, err := newSide(ctx, w, true)
		if err != nil {
			t.Fatal(err)
		}
		gatehouse, err := newSide(ctx, w, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range w.requests {
			all = append(all, comparison{w, r, upstream.judge(ctx, r), gatehouse.judge(ctx, r)})
		}
	})
	return all
}

func show(all []difference) string {
	var b strings.Builder
	for _, d := range all {
		if strings.Contains(d.upstream+d.gatehouse, "\n") {
			fmt.Fprintf(&b, "%s (-upstream +gatehouse):\n%s\n", d.at, cmp.Diff(d.upstream, d.gatehouse))
		} else {
			fmt.Fprintf(&b, "%s:\n  upstream:  %s\n  gatehouse: %s\n", d.at, d.upstream, d.gatehouse)
		}
	}
	return b.String()
}

// yaml shows the registrations and the request.
func (c *comparison) yaml() string {
	var b strings.Builder
	document := func(title string, v any) { fmt.Fprintf(&b, "--- # %s\n%s", title, must(yaml.Marshal(v))) }
	for _, r := range c.world.registered() {
		document("registration", r)
	}
	document("answers", c.world.answers)
	for _, n := range append(c.world.namespaces[:len(c.world.namespaces):len(c.world.namespaces)], c.world.live...) {
		document("namespace", n)
	}
	r := c.request
	document("request", map[string]any{
		"operation": r.operation, "resource": r.resource, "subresource": r.subresource, "kind": r.kind, "namespace": r.namespace,
		"name": r.name, "dryRun": r.dryRun, "user": r.user, "options": r.options, "timeout": r.timeout.String(), "first": c.world.first,
	})
	if r.object != nil {
		if o, err := versioned(r.object, r.kind); err == nil {
			document("object", o)
		}
	}
	if r.old != nil {
		if o, err := versioned(r.old, r.kind); err == nil {
			document("old object", o)
		}
	}
	return b.String()
}
