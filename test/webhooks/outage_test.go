package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// everything returns a webhook that matches all writes, in all namespaces except the namespaces of the
// cluster and of the webhooks themselves (Webhook Bootstrapping, "Guidelines on namespace labeling").
func everything(url, policy string) map[string]any {
	return map[string]any{
		"name":         "everything.example.com",
		"clientConfig": map[string]any{"url": url},
		"rules":        []any{map[string]any{"operations": []any{"*"}, "apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "resources": []any{"*/*"}}},
		"namespaceSelector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": "runlevel", "operator": "NotIn", "values": []any{"0", "1", "2"}}}},
		"failurePolicy": policy, "sideEffects": "None", "timeoutSeconds": 5, "admissionReviewVersions": []any{"v1"},
	}
}

// inForce waits until a webhook rejects a write to a namespace.
func inForce(t *testing.T, h *harness.HTTP, namespace string) {
	t.Helper()
	harness.Eventually(t, "the registration in force", func() error {
		if r := h.Do("POST", configMaps(namespace)+"?dryRun=All", configMap("probe")); r.Code != http.StatusInternalServerError {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
}

// Every webhook is down, and the webhooks match everything. The server restarts and becomes ready, including
// the objects that it creates at its start; exempt namespaces accept writes; and an administrator needs only
// kubectl to recover.
func TestEveryWebhookIsDown(t *testing.T) {
	t.Parallel()
	s := harness.Start(t)
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", toJSON(`{apiVersion: v1, kind: Namespace, metadata: {name: webhooks, labels: {runlevel: "2"}}}`))
	ns := s.Namespace(t)
	// The data of an old release lack objects of the new release.
	h.Must(http.StatusOK, "DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/view", "")
	h.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/kube-node-lease", "")
	harness.Eventually(t, "the namespace's end", func() error {
		if r := h.Do("GET", "/api/v1/namespaces/kube-node-lease", ""); r.Code != http.StatusNotFound {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	down := "https://" + harness.Refused(t)
	h.Must(http.StatusCreated, "POST", registrationsPath("v1", mutating), configuration(mutating, "down", everything(down, "Fail")))
	h.Must(http.StatusCreated, "POST", registrationsPath("v1", validating), configuration(validating, "down", everything(down, "Fail")))
	inForce(t, h, ns)

	s.Stop(t)
	s.Restart(t)
	h = s.HTTP(t, nil)
	h.Get("/readyz")
	h.Get(configMaps(ns))
	inForce(t, h, ns)

	status := h.Refused(http.StatusInternalServerError, "InternalError", "POST", configMaps(ns), configMap("a"))
	if !strings.HasPrefix(status.Message, `Internal error occurred: failed calling webhook "everything.example.com": `) {
		t.Errorf("S7.2 the message is %q", status.Message)
	}
	t.Run("namespaces that are exempt", func(t *testing.T) {
		h := s.HTTP(t, nil)
		h.Must(http.StatusCreated, "POST", configMaps("webhooks"), configMap("a"))
		h.Must(http.StatusCreated, "POST", "/apis/apps/v1/namespaces/webhooks/deployments", deployment("apps/v1", "webhook"))
		h.Must(http.StatusOK, "DELETE", configMaps("webhooks")+"/a", "")
	})
	t.Run("the server is skipped, and says so", func(t *testing.T) {
		h := s.HTTP(t, nil)
		harness.Eventually(t, "a skipped call", func() error {
			status := h.Refused(http.StatusInternalServerError, "InternalError", "POST", configMaps(ns), configMap("a"))
			for _, part := range []string{"not called: the last ", " calls to " + strings.TrimPrefix(down, "https://") + " failed, the first at 2", "connect: connection refused; "} {
				if !strings.Contains(status.Message, part) {
					return fmt.Errorf("no %q in %q", part, status.Message)
				}
			}
			return nil
		})
		want(t, "metric", h.Metrics().Value("gatehouse_admission_webhook_circuit_open", `plugin="MutatingAdmissionWebhook"`), 1.0)
		harness.Eventually(t, "its state", func() error {
			r := h.Get("/apis/gatehouse.dev/v1alpha1/registrationstates/mutatingwebhookconfigurations.down")
			skipped, _ := harness.At(r.Body, "replicas", "0", "skipped", "0").(map[string]any)
			if skipped["webhook"] != "everything.example.com" || "https://"+fmt.Sprint(skipped["target"]) != down || !strings.Contains(fmt.Sprint(skipped["reason"]), "connection refused") {
				return fmt.Errorf("%s", r.Raw)
			}
			return nil
		})
	})
	t.Run("kubectl is enough", func(t *testing.T) {
		k := s.Kubectl(t, ns)
		for _, command := range []string{
			`patch mutatingwebhookconfiguration down --type=json -p=[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`,
			"delete validatingwebhookconfiguration down",
		} {
			if r := k.Run("", strings.Fields(command)...); r.Code != 0 {
				t.Fatalf("%s: %s", command, r.Err)
			}
		}
		harness.Eventually(t, "a write", func() error {
			if r := s.HTTP(t, nil).Do("POST", configMaps(ns), configMap("after")); r.Code != http.StatusCreated {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
			return nil
		})
		if r := k.Run("", "delete", "mutatingwebhookconfiguration", "down"); r.Code != 0 {
			t.Fatal(r.Err)
		}
	})
	t.Run("what was missing is made when it can be", func(t *testing.T) {
		h := s.HTTP(t, nil)
		for _, path := range []string{"/apis/rbac.authorization.k8s.io/v1/clusterroles/view", "/api/v1/namespaces/kube-node-lease"} {
			harness.Eventually(t, path, func() error {
				if r := h.Do("GET", path, ""); r.Code != http.StatusOK {
					return fmt.Errorf("%d", r.Code)
				}
				return nil
			})
		}
	})
}

// overloaded is a server with few slots for writes and a webhook for pods that never answers. No user is
// privileged.
type overloaded struct {
	*harness.Server
	ns   string
	hook *harness.Hook
	// waiting is the number of pods that wait for the webhook; release lets it answer.
	waiting atomic.Int64
	release func()
}

func newOverloaded(t testing.TB, places, seconds int) *overloaded {
	t.Helper()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte("alice-token,alice,uid-alice,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &overloaded{Server: harness.Start(t, "--token-auth-file", tokens, "--authorization-mode", "AlwaysAllow", "--max-mutating-requests-inflight", fmt.Sprint(places))}
	o.ns = o.Namespace(t)
	done := make(chan struct{})
	o.release = sync.OnceFunc(func() { close(done) })
	o.hook = harness.NewWebhookServer(t, nil).Hook("/", func(w http.ResponseWriter, r *harness.Review) {
		o.waiting.Add(1)
		defer o.waiting.Add(-1)
		select {
		case <-done:
			harness.Allow(w, r)
		case <-r.HTTP.Context().Done():
		}
	})
	t.Cleanup(o.release)
	o.HTTP(t, nil).Must(http.StatusCreated, "POST", registrationsPath("v1", validating), configuration(validating, "hangs", map[string]any{
		"name": "hangs.example.com", "clientConfig": o.hook.ClientConfig(), "rules": []any{rule("CREATE", "/v1/pods")},
		"failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": seconds, "admissionReviewVersions": []any{"v1"},
	}))
	harness.Eventually(t, "the registration in force", func() error {
		// The client disconnects as soon as the webhook is called, so that the server does not classify the
		// webhook as slow.
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		alice, answer := o.alice(t), make(chan error, 1)
		go func() {
			_, err := alice.Try(ctx, "POST", o.pods()+"?dryRun=All", podNamed("probe"))
			answer <- err
		}()
		for len(o.hook.Reviews()) == 0 {
			select {
			case err := <-answer:
				return fmt.Errorf("answered without it: %v", err)
			case <-time.After(time.Millisecond):
			}
		}
		leave()
		<-answer
		return nil
	})
	o.hook.Forget()
	return o
}

// alice returns a client with separate connections.
func (o *overloaded) alice(t testing.TB) *harness.HTTP {
	c := o.WithToken("alice-token")
	// Clients with a function in their configuration do not share connections.
	c.Proxy = http.ProxyFromEnvironment
	return o.HTTP(t, c)
}

func (o *overloaded) pods() string { return "/api/v1/namespaces/" + o.ns + "/pods" }

func podNamed(name string) string {
	return toJSON(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: main, image: m}]}}`, name)
}

// Far more pods wait for a hanging webhook than the server handles writes at once. Other writes are not
// delayed, and when the webhook answers, the pods are stored.
func TestAWebhookThatHangsDoesNotStarveOtherWrites(t *testing.T) {
	t.Parallel()
	places := speed.Of(5, 20)
	o := newOverloaded(t, places, 30)
	// A connection carries at most a hundred requests at once.
	alice, others := o.alice(t), o.alice(t)
	var waiting sync.WaitGroup
	for i := range 5 * places {
		waiting.Go(func() {
			for {
				code, err := others.Try(harness.Context(t), "POST", o.pods(), podNamed(fmt.Sprintf("p%d", i)))
				switch {
				case err == nil && code == http.StatusTooManyRequests:
					// Some requests arrive at once, before the first waiting requests have released their
					// slots.
					continue
				case err != nil || code != http.StatusCreated:
					t.Errorf("pod %d: %d, %v", i, code, err)
				}
				return
			}
		})
	}
	harness.Eventually(t, "all pods waiting", func() error {
		if n := len(o.hook.Reviews()); n < 5*places {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	harness.Eventually(t, "the last pods have stepped aside", func() error {
		if r := alice.Do("POST", configMaps(o.ns)+"?dryRun=All", configMap("probe")); r.Code != http.StatusCreated {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	for i := range 5 * places {
		alice.Must(http.StatusCreated, "POST", configMaps(o.ns), configMap(fmt.Sprintf("c%d", i)))
	}
	o.release()
	waiting.Wait()
}

// The chain of Ignore webhooks of kubernetes/kubernetes#128162: each webhook may take longer than the
// request, and the request succeeds in time.
func TestIgnoreWebhooksThatHangDoNotFailARequest(t *testing.T) {
	t.Parallel()
	j := newJudged(t)
	ns := j.Namespace(t)
	hang := j.hooks.Hook("/hang", func(_ http.ResponseWriter, r *harness.Review) { <-r.HTTP.Context().Done() })
	needed := j.hooks.Hook("/needed", harness.Patch(`[{"op":"add","path":"/data/needed","value":"yes"}]`))
	var hanging []map[string]any
	for i := range 8 {
		hanging = append(hanging, webhook(fmt.Sprintf("hang%d", i), ns, hang, "failurePolicy: Ignore", "timeoutSeconds: 30"))
	}
	register(t, j.Server, "v1", mutating, append(hanging, webhook("needed", ns, needed))...)
	register(t, j.Server, "v1", validating, hanging...)
	h := j.HTTP(t, nil)
	for _, limit := range speed.Some(t, 1, []time.Duration{time.Second, 3 * time.Second}) {
		t.Run(limit.String(), func(t *testing.T) {
			r := inTime(t, h, configMaps(ns), limit, http.StatusCreated, func(n int) string { return configMap(fmt.Sprintf("c%d%s", n, limit)) })
			want(t, "what the webhook added that the request needs", r.Text("data", "needed"), "yes")
		})
	}
}

// inTime posts an object to a path until the response has the code within the request's time limit. Hanging
// webhooks leave a tenth of that time; a machine may occasionally be too busy to finish in it, and inTime
// then tries the next object.
func inTime(t *testing.T, h *harness.HTTP, path string, limit time.Duration, code int, object func(n int) string) *harness.Response {
	t.Helper()
	var r *harness.Response
	n := 0
	harness.Eventually(t, fmt.Sprint(code, " within ", limit), func() error {
		n++
		began := time.Now()
		r = h.Do("POST", path+"?timeout="+limit.String(), object(n))
		if took := time.Since(began); r.Code != code || took > limit {
			return fmt.Errorf("%d after %s: %s", r.Code, took, r.Raw)
		}
		return nil
	})
	return r
}

// BenchmarkConfigMapsBesideHangingPods measures the rate of configmap creations, alternately alone and while
// clients continuously create pods that wait for a webhook which never answers. The figures are medians;
// kept-% is the second rate as a percentage of the first.
func BenchmarkConfigMapsBesideHangingPods(b *testing.B) {
	// More clients wait than the server handles writes at once, and each waits once in a period.
	const clients, places, timeout, writers, rounds = 250, 200, 10, 4, 3
	const period = (timeout + 1) * time.Second
	o := newOverloaded(b, places, timeout)
	alice := o.alice(b)
	var others []*harness.HTTP
	for range clients {
		others = append(others, o.alice(b))
	}
	n := 0
	rate := func() float64 {
		ctx, cancel := context.WithTimeout(b.Context(), period)
		defer cancel()
		var mu sync.Mutex
		created, refused := 0, 0
		var group sync.WaitGroup
		began := time.Now()
		for range writers {
			group.Go(func() {
				for ctx.Err() == nil {
					mu.Lock()
					n++
					name := fmt.Sprintf("c%d", n)
					mu.Unlock()
					code, err := alice.Try(b.Context(), "POST", configMaps(o.ns), configMap(name))
					mu.Lock()
					switch {
					case err == nil && code == http.StatusCreated:
						created++
					case err == nil && code == http.StatusTooManyRequests:
						refused++
					default:
						b.Errorf("%d, %v", code, err)
					}
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if refused > 0 {
			b.Logf("%d configmaps got 429", refused)
		}
		return float64(created) / time.Since(began).Seconds()
	}
	for b.Loop() {
		var alone, beside, kept []float64
		for range rounds {
			alone = append(alone, rate())
			ctx, stop := context.WithCancel(b.Context())
			var pods sync.WaitGroup
			for i := range clients {
				pods.Go(func() {
					for k := 0; ctx.Err() == nil; k++ {
						// A refused client retries after a second, as the response requests.
						again := time.After(time.Second)
						_, _ = others[i].Try(ctx, "POST", o.pods(), podNamed(fmt.Sprintf("p%d-%d", i, k)))
						select {
						case <-again:
						case <-ctx.Done():
						}
					}
				})
			}
			harness.Eventually(b, "pods waiting", func() error {
				if n := o.waiting.Load(); n < clients/2 {
					return fmt.Errorf("%d", n)
				}
				return nil
			})
			beside = append(beside, rate())
			kept = append(kept, 100*beside[len(beside)-1]/alone[len(alone)-1])
			stop()
			pods.Wait()
			harness.Eventually(b, "the webhook alone", func() error {
				if n := o.waiting.Load(); n > 0 {
					return fmt.Errorf("%d", n)
				}
				return nil
			})
			o.hook.Forget()
		}
		b.ReportMetric(median(alone), "alone/s")
		b.ReportMetric(median(beside), "beside/s")
		b.ReportMetric(median(kept), "kept-%")
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
