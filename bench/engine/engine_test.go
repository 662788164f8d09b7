package engine

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/bench/internal/sides"
)

// hooks is the webhook process of all tests.
var hooks *peer.Webhook

func TestMain(m *testing.M) {
	binary := flag.String("webhook", "", "the webhook program; built when not given")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "enginebench-")
		if err == nil {
			defer os.RemoveAll(dir)
			if *binary == "" {
				*binary, err = peer.BuildWebhook(context.Background(), "..", dir)
			}
		}
		if err == nil {
			hooks, err = peer.StartWebhook(context.Background(), peer.Binaries{Webhook: *binary}, filepath.Join(dir, "certs"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer hooks.Stop()
		return m.Run()
	}())
}

// interfaces are the ObjectInterfaces of a server with the built-in kinds.
var interfaces = func() admission.ObjectInterfaces {
	i := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme).(*admission.RuntimeObjectInterfaces)
	mapper := runtime.NewEquivalentResourceRegistry()
	mapper.RegisterKindFor(configMaps, "", kind)
	i.EquivalentResourceMapper = mapper
	return i
}()

var (
	kind       = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	caller     = &user.DefaultInfo{Name: "jane", Groups: []string{"system:authenticated"}}
)

// objects are the measured objects, by the size of their JSON.
var objects = []struct {
	name   string
	object *core.ConfigMap
}{
	{"500B", configMap(3, 100)},
	{"100KB", configMap(100, 1000)},
}

func configMap(keys, size int) *core.ConfigMap {
	c := &core.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "bench", Namespace: "default", Labels: map[string]string{"app": "bench"}},
		Data:       map[string]string{},
	}
	for i := range keys {
		c.Data[fmt.Sprintf("key-%03d", i)] = strings.Repeat("x", size)
	}
	return c
}

// attributes returns the attributes of the creation of an object.
func attributes(object runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(object, nil, kind, "default", "bench", configMaps, "", admission.Create,
		&metav1.CreateOptions{}, false, caller)
}

// judge runs a create through both passes, as a server does.
func judge(ctx context.Context, c sides.Chain, a admission.Attributes) error {
	if err := c.Admit(ctx, a, interfaces); err != nil {
		return err
	}
	return c.Validate(ctx, a, interfaces)
}

func matching(n int, mutating bool, path string) []hook {
	all := make([]hook, n)
	for i := range all {
		all[i] = hook{mutating: mutating, url: hooks.URL + path, resource: "configmaps"}
	}
	return all
}

// TestSidesAgree verifies that both sides call webhooks and follow their answers.
func TestSidesAgree(t *testing.T) {
	for _, s := range sides.All {
		t.Run("side="+s.Name, func(t *testing.T) {
			for _, mutating := range []bool{true, false} {
				c, err := made(t.Context(), s, register(hooks.CA, matching(1, mutating, "/deny")), true)
				if err != nil {
					t.Fatal(err)
				}
				err = judge(t.Context(), c, attributes(configMap(1, 1)))
				if err == nil || !strings.Contains(err.Error(), "denied by the bench") {
					t.Errorf("mutating=%t: error = %v, want the denial", mutating, err)
				}
			}
			c, err := made(t.Context(), s, register(hooks.CA, matching(1, true, "/annotate")), true)
			if err != nil {
				t.Fatal(err)
			}
			object := configMap(1, 1)
			if err := judge(t.Context(), c, attributes(object)); err != nil {
				t.Fatal(err)
			}
			if object.Annotations["bench.gatehouse.dev/seen"] != "yes" {
				t.Errorf("annotations = %v, want those of the patch", object.Annotations)
			}
		})
	}
}

// warmup is the number of creates before the measured ones.
const warmup = 50

// run measures creates of an object on both sides. Every create must cause the given number of webhook calls.
func run(b *testing.B, registered []hook, object *core.ConfigMap, calls int) {
	for _, s := range sides.All {
		b.Run("side="+s.Name, func(b *testing.B) {
			ctx := b.Context()
			c, err := made(ctx, s, register(hooks.CA, registered), true)
			if err != nil {
				b.Fatal(err)
			}
			// The first calls open connections, and Gatehouse learns which webhooks to call ahead of their turn.
			for range warmup {
				if err := judge(ctx, c, attributes(object.DeepCopy())); err != nil {
					b.Fatal(err)
				}
			}
			before, err := hooks.Count(ctx)
			if err != nil {
				b.Fatal(err)
			}
			began := cpu(b)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if err := judge(ctx, c, attributes(object.DeepCopy())); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric((cpu(b)-began).Seconds()/float64(n), "cpu-sec/op")
			after, err := hooks.Count(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if got, want := after-before, int64(n*calls); got != want {
				b.Fatalf("%d calls for %d creates, want %d", got, n, want)
			}
		})
	}
}

// bare posts an object to the webhook n times, as an already encoded review.
func bare(b *testing.B, n int, parallel bool, object *core.ConfigMap) {
	data, err := json.Marshal(object)
	if err != nil {
		b.Fatal(err)
	}
	body := fmt.Appendf(nil, `{"request":{"uid":"c0b3a2f0-0000-4000-8000-000000000000","object":%s}}`, data)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(hooks.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: n}
	defer transport.CloseIdleConnections()
	post := func() error {
		request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, hooks.URL+"/allow", bytes.NewReader(body))
		if err != nil {
			return err
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
	began := cpu(b)
	b.ReportAllocs()
	rounds := 0
	for b.Loop() {
		var group errgroup.Group
		if !parallel {
			group.SetLimit(1)
		}
		for range n {
			group.Go(post)
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
		rounds++
	}
	b.ReportMetric((cpu(b)-began).Seconds()/float64(rounds), "cpu-sec/op")
}

// cpu returns the CPU time that this process has used.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkNoneMatches has hooks, half of them mutating, for other resources. It runs only the plugins, with the same
// request every time.
func BenchmarkNoneMatches(b *testing.B) {
	for _, n := range []int{0, 100, 1000, 10000} {
		for _, s := range sides.All {
			b.Run(fmt.Sprintf("hooks=%d/side=%s", n, s.Name), func(b *testing.B) {
				c, err := made(b.Context(), s, register(hooks.CA, others(n)), false)
				if err != nil {
					b.Fatal(err)
				}
				a := attributes(objects[0].object)
				began := cpu(b)
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					if err := judge(b.Context(), c, a); err != nil {
						b.Fatal(err)
					}
					n++
				}
				b.ReportMetric((cpu(b)-began).Seconds()/float64(n), "cpu-sec/op")
			})
		}
	}
}

// BenchmarkNoneMatchesInChain measures the same in a server's chain: with its metrics, and with a new request and a
// new object every time.
func BenchmarkNoneMatchesInChain(b *testing.B) {
	for _, n := range []int{0, 10000} {
		b.Run(fmt.Sprintf("hooks=%d", n), func(b *testing.B) { run(b, others(n), objects[0].object, 0) })
	}
}

// others returns n hooks, half of them mutating, for other resources.
func others(n int) []hook {
	all := make([]hook, n)
	for i := range all {
		all[i] = hook{
			mutating: i%2 == 0, url: hooks.URL + "/allow",
			group: fmt.Sprintf("group%d.example.com", i%100), resource: fmt.Sprintf("things%d", i),
		}
	}
	return all
}

// BenchmarkAllow has hooks that match and allow. The side bare is the lower bound: the same number of round trips
// with about the same number of bytes, using only net/http.
func BenchmarkAllow(b *testing.B) {
	for _, phase := range []string{"mutating", "validating"} {
		for _, n := range []int{1, 10} {
			for _, o := range objects {
				b.Run(fmt.Sprintf("phase=%s/hooks=%d/object=%s", phase, n, o.name), func(b *testing.B) {
					run(b, matching(n, phase == "mutating", "/allow"), o.object, n)
					b.Run("side=bare", func(b *testing.B) { bare(b, n, phase == "validating", o.object) })
				})
			}
		}
	}
}

// BenchmarkPatch has one mutating hook that patches, and one validating hook.
func BenchmarkPatch(b *testing.B) {
	for _, o := range objects {
		b.Run("object="+o.name, func(b *testing.B) {
			registered := append(matching(1, true, "/annotate"), matching(1, false, "/allow")...)
			run(b, registered, o.object, 2)
		})
	}
}

// BenchmarkSlow has ten mutating hooks that take 5 ms each and change nothing. They are declared free of side effects
// and allow reinvocation.
func BenchmarkSlow(b *testing.B) {
	registered := matching(10, true, "/allow/5ms")
	for i := range registered {
		registered[i].reinvokeNeeded = true
	}
	run(b, registered, objects[0].object, 10)
}
