package agreement

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	registrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

const (
	firstSeed    = 1
	defaultCases = 2000
)

var (
	seed  = flag.Uint64("seed", firstSeed, "the first `seed`")
	cases = flag.Int("cases", defaultCases, "how many `cases` to compare: a seed makes five")
	// Both sides read the emulated release of the process.
	release = flag.String("emulated-version", "", "`release` that both sides emulate, such as 1.35")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *release != "" {
		// Before 1.36 the gate is off, and no plugin evaluates mutating policies: S26.5.
		flags := emulation.Flags{EmulatedVersion: []string{*release}, FeatureGates: []string{"MutatingAdmissionPolicy=true"}}
		if err := emulation.Apply(flags); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	klog.SetLogger(logr.Discard())
	// The handlers sleep while they hold a lock that all worlds share.
	utilruntime.ErrorHandlers = nil
	// Webhooks are in memory: no proxy of the environment may be used.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		os.Unsetenv(name)
	}
	// Parts that all worlds share are created outside of the synctest bubbles.
	cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	os.Exit(m.Run())
}

// tallies count observed outcomes by name.
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

// TestEngineAgreesWithUpstream compares the verdicts, objects, reviews, annotations and warnings of both sides on
// random webhook configurations and requests.
func TestEngineAgreesWithUpstream(t *testing.T) {
	t.Run("worlds", func(t *testing.T) {
		for i := range (*cases + requestsPerWorld - 1) / requestsPerWorld {
			seed := *seed + uint64(i)
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
				t.Parallel()
				for i, c := range run(t, newWorld(seed)) {
					c.tally()
					if len(c.differences()) > 0 {
						c := shrink(t, &c)
						t.Errorf("request %d of seed %d: the sides differ. To see it again: go test ./agreement -seed %d -cases %d\n\n%s\nThis is what is left when everything is left out that it does not need:\n%s",
							i, seed, seed, requestsPerWorld, show(c.differences()), c.yaml())
						return
					}
				}
			})
		}
	})
	for _, what := range slices.Sorted(maps.Keys(tally.seen)) {
		t.Logf("%6d %s", tally.seen[what], what)
	}
	if t.Failed() || *seed != firstSeed || *cases < defaultCases {
		return
	}
	// A fact or a translation that no case exercises is not tested at all.
	for _, f := range facts {
		if got, want := tally.seen[f.name], *cases*f.percent/100; got == 0 || got < want {
			t.Errorf("%d cases %s, want %d or more", got, f.name, max(want, 1))
		}
	}
	for i := range translations {
		if name := translations[i].name(); tally.seen[name] == 0 {
			t.Errorf("no case has the decided difference %q", name)
		}
	}
	for i := range decided {
		if name := decided[i].name(); tally.seen[name] == 0 {
			t.Errorf("no case has the decided difference %q", name)
		}
	}
}

// facts are properties of cases. Each must hold for a minimum percentage of the cases, and for at least one case.
var facts = []struct {
	name    string
	percent int
	holds   func(*comparison) bool
}{
	{"call webhooks", 33, func(c *comparison) bool { return len(c.reviews()) > 0 }},
	{"are allowed", 33, func(c *comparison) bool { return len(c.upstream) == 2 && c.upstream[1].err == nil }},
	{"are rejected in the mutating pass", 5, func(c *comparison) bool { return len(c.upstream) == 1 }},
	{"are rejected in the validating pass", 3, func(c *comparison) bool { return len(c.upstream) == 2 && c.upstream[1].err != nil }},
	{"change the object", 2, func(c *comparison) bool { return c.annotated(`\"mutated\":true`) }},
	{"call a webhook again", 1, func(c *comparison) bool { return c.annotated("round_1") }},
	{"ignore a failure", 1, func(c *comparison) bool { return c.annotated("failed-open") }},
	{"send another version than that of the request", 1, func(c *comparison) bool {
		return slices.ContainsFunc(c.reviews(), func(r received) bool {
			var review struct {
				Request struct{ Resource, RequestResource json.RawMessage }
			}
			return json.Unmarshal([]byte(r.body), &review) == nil && !bytes.Equal(review.Request.Resource, review.Request.RequestResource)
		})
	}},
	{"have a webhook that hangs", 0, func(c *comparison) bool {
		return slices.ContainsFunc(c.reviews(), func(r received) bool { return c.world.answers[r.hook].Wire == "hang" })
	}},
	{"have a client that goes", 1, func(c *comparison) bool { return c.request.gone > 0 }},
	{"are dry runs that call webhooks", 1, func(c *comparison) bool { return c.request.dryRun && len(c.reviews()) > 0 }},
	{"warn", 1, func(c *comparison) bool {
		return slices.ContainsFunc(c.upstream, func(p pass) bool { return len(p.warnings) > 0 })
	}},
	{"are about a custom resource named namespaces", 1, func(c *comparison) bool { return renamed(c.request.resource) != c.request.resource }},
}

func (c *comparison) tally() {
	for _, f := range facts {
		if f.holds(c) {
			tally.count(f.name)
		}
	}
}

// reviews returns all reviews that upstream sent.
func (c *comparison) reviews() (all []received) {
	for _, p := range c.upstream {
		all = append(all, p.received...)
	}
	return all
}

// annotated reports whether an annotation of upstream contains a text.
func (c *comparison) annotated(text string) bool {
	return slices.ContainsFunc(c.upstream, func(p pass) bool { return strings.Contains(c.annotations(p.annotations), text) })
}

// run runs the requests of a world through both sides.
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
		// Wait until both sides have read the webhook configurations.
		synctest.Wait()
		for _, r := range w.requests {
			all = append(all, comparison{w, r, upstream.judge(ctx, r), gatehouse.judge(ctx, r)})
		}
		// The fake clock stops when this function returns. Goroutines that wait for it must end before.
		cancel()
		time.Sleep(time.Minute)
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

// yaml returns the webhook configurations and the request in YAML. It leaves out a correct caBundle.
func (c *comparison) yaml() string {
	var b strings.Builder
	document := func(title string, v any) { fmt.Fprintf(&b, "--- # %s\n%s", title, must(yaml.Marshal(v))) }
	answers := map[string]answer{}
	for _, r := range c.world.registered() {
		switch r := r.(type) {
		case *registrationv1.MutatingWebhookConfiguration:
			for i := range r.Webhooks {
				leaveOut(&r.Webhooks[i].ClientConfig.CABundle)
			}
		case *registrationv1.ValidatingWebhookConfiguration:
			for i := range r.Webhooks {
				leaveOut(&r.Webhooks[i].ClientConfig.CABundle)
			}
		case *registrationv1beta1.MutatingWebhookConfiguration:
			for i := range r.Webhooks {
				leaveOut(&r.Webhooks[i].ClientConfig.CABundle)
			}
		case *registrationv1beta1.ValidatingWebhookConfiguration:
			for i := range r.Webhooks {
				leaveOut(&r.Webhooks[i].ClientConfig.CABundle)
			}
		}
		document("registration", r)
	}
	for _, k := range c.world.configurations {
		for _, h := range k.webhooks {
			id := idOf(&h.ClientConfig)
			answers[label(id, k.mutating)] = c.world.answers[id]
		}
	}
	document("answers", answers)
	r := c.request
	labels := map[string]map[string]string{}
	for _, n := range slices.Concat(c.world.namespaces, c.world.live) {
		labels[n.Name] = n.Labels
	}
	document("labels of namespaces", labels)
	document("request", map[string]any{
		"operation": r.operation, "resource": r.resource.String(), "subresource": r.subresource, "kind": r.kind.String(),
		"namespace": r.namespace, "name": r.name, "dryRun": r.dryRun, "user": r.user, "options": r.options,
		"timeout": r.timeout.String(), "clientGoesAfter": r.gone.String(), "pluginBeforeWebhooks": c.world.first,
	})
	for _, o := range []struct {
		title string
		kind  schema.GroupVersionKind
		old   bool
	}{{"object", r.kind, false}, {"old object", r.kind, true}} {
		object := r.object
		if o.old {
			object = r.old
		}
		if object == nil {
			continue
		}
		if shown, err := versioned(object, o.kind); err == nil {
			document(o.title, shown)
		}
	}
	return b.String()
}

func leaveOut(bundle *[]byte) {
	if bytes.Equal(*bundle, pki.ca) {
		*bundle = nil
	}
}
