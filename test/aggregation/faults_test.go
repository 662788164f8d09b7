package aggregation

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// fake is an API server with a configurable handler for the resource things in version v1 of a group.
type fake struct {
	*httptest.Server
	group  string
	bundle []byte
	port   int

	mu struct {
		sync.Mutex
		seen   *http.Request
		things http.HandlerFunc
		// first handles a request before all other handlers, or returns false.
		first func(http.ResponseWriter, *http.Request) bool
	}
}

// newFake starts a server whose certificate is valid for its service.
func newFake(t *testing.T, group string, things http.HandlerFunc) *fake {
	t.Helper()
	authority := harness.NewAuthority(t, group)
	f := &fake{group: group, bundle: authority.Bundle}
	f.answer(things)
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	name, _, _ := strings.Cut(group, ".")
	f.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Serving(t, name+".fakes.svc")}, ClientAuth: tls.RequestClientCert}
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	f.port = f.Listener.Addr().(*net.TCPAddr).Port
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// answer sets the handler of things.
func (f *fake) answer(things http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.things = things
}

// seen returns the last request for things.
func (f *fake) seen() *http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.seen
}

func (f *fake) serve(w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	first := f.mu.first
	f.mu.Unlock()
	if first != nil && first(w, req) {
		return
	}
	switch {
	case req.URL.Path == "/apis/"+f.group+"/v1":
		harness.WriteJSON(w, http.StatusOK, map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f.group + "/v1",
			"resources": []any{map[string]any{"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": []any{"get", "list", "watch"}}},
		})
	case strings.HasPrefix(req.URL.Path, "/apis/"+f.group+"/"):
		f.mu.Lock()
		f.mu.seen = req
		things := f.mu.things
		f.mu.Unlock()
		things(w, req)
	default:
		http.NotFound(w, req)
	}
}

// register registers the server with main, through a service with an external name.
func (f *fake) register(t *testing.T, kubectl *harness.Kubectl) {
	t.Helper()
	name, _, _ := strings.Cut(f.group, ".")
	kubectl.MustWith(fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: fakes}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%[2]s}
spec: {group: %[2]s, version: v1, groupPriorityMinimum: 500, versionPriority: 10, caBundle: %[3]s, service: {name: %[1]s, namespace: fakes, port: %[4]d}}
`, name, f.group, base64.StdEncoding.EncodeToString(f.bundle), f.port), "apply", "-f", "-")
}

func things(group string) string { return "/apis/" + group + "/v1/namespaces/default/things" }

func emptyList(w http.ResponseWriter, _ *http.Request) {
	harness.WriteJSON(w, http.StatusOK, map[string]any{"kind": "ThingList", "apiVersion": "v1", "metadata": map[string]any{}, "items": []any{}})
}

// Failing servers affect only requests for them, they do not receive callers' credentials, and the main
// server determines the user of a request (S22.8 to S22.13).
func TestServersThatFail(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("alice-token,alice,uid-alice,\"devs,ops\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	main := harness.Start(t, "--token-auth-file", tokens, "--authorization-mode", "AlwaysAllow", "--max-requests-inflight", "2")
	kubectl, admin := main.Kubectl(t, "fakes"), main.HTTP(t, nil)
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"fakes"}}`)
	alice := main.HTTP(t, main.WithToken("alice-token"))
	good := newFake(t, "good.example.com", emptyList)
	good.register(t, kubectl)
	available(t, admin, "v1.good.example.com", "True")
	service := fmt.Sprintf(`service fakes/good:%d of APIService "v1.good.example.com"`, good.port)

	t.Run("S22.9, S22.10 what a server learns of a caller", func(t *testing.T) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		alice.Must(http.StatusOK, "GET", things("good.example.com"), "",
			"X-Remote-User", "root", "X-Remote-Group", "system:masters", "X-Remote-Extra-Scopes", "all", "Cookie", "session=secret", "Traceparent", trace)
		got := good.seen()
		for name, want := range map[string][]string{
			"X-Remote-User": {"alice"}, "X-Remote-Uid": {"uid-alice"}, "X-Remote-Group": {"devs", "ops", "system:authenticated"},
			"X-Remote-Extra-Scopes": nil, "Authorization": nil, "Cookie": nil, "Traceparent": {trace},
		} {
			if values := got.Header.Values(name); !slices.Equal(values, want) {
				t.Errorf("%s: %q, want %q", name, values, want)
			}
		}
		if got.Header.Get("Audit-Id") == "" {
			t.Error("there is no audit id")
		}
		if certs := got.TLS.PeerCertificates; len(certs) != 1 || certs[0].Subject.CommonName != "front-proxy-client" {
			t.Errorf("client certificates: %v", certs)
		}
		impersonated := main.HTTP(t, main.As("bob", "guests"))
		impersonated.Must(http.StatusOK, "GET", things("good.example.com"), "")
		if got := good.seen(); got.Header.Get("X-Remote-User") != "bob" || got.Header.Get("Impersonate-User") != "" {
			t.Errorf("impersonated: %v", got.Header)
		}
	})
	t.Run("S22.21 upgrades", func(t *testing.T) {
		good.answer(func(w http.ResponseWriter, req *http.Request) {
			conn, buffered, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			line, err := buffered.ReadString('\n')
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(conn, "%s says %s", req.Header.Get("X-Remote-User"), line)
		})
		conn, err := alice.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s/a/connect HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-token\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", things("good.example.com"))
		reader := bufio.NewReader(conn)
		res, err := http.ReadResponse(reader, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", res, err)
		}
		fmt.Fprintln(conn, "hello")
		if line, err := reader.ReadString('\n'); err != nil || line != "alice says hello\n" {
			t.Errorf("%q, %v", line, err)
		}
	})
	t.Run("S22.21 redirects", func(t *testing.T) {
		good.answer(func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "https://elsewhere.example.com", http.StatusFound)
		})
		alice.Must(http.StatusBadGateway, "GET", things("good.example.com"), "")
	})
	t.Run("S22.12 garbage", func(t *testing.T) {
		good.answer(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprint(conn, "what is this\r\n\r\n")
			conn.Close()
		})
		status := alice.Refused(http.StatusServiceUnavailable, "ServiceUnavailable", "GET", things("good.example.com"), "")
		if !strings.HasPrefix(status.Message, service+" did not answer: ") {
			t.Errorf("message: %s", status.Message)
		}
	})
	t.Run("S22.12, S22.13 slow", func(t *testing.T) {
		entered := make(chan struct{}, 2)
		good.answer(func(_ http.ResponseWriter, req *http.Request) {
			entered <- struct{}{}
			<-req.Context().Done()
		})
		defer good.answer(emptyList)
		ctx, cancel := context.WithCancel(t.Context())
		var hanging sync.WaitGroup
		for range 2 {
			hanging.Go(func() { _, _ = alice.Try(ctx, "GET", things("good.example.com"), "") })
		}
		<-entered
		<-entered
		// Its slots are occupied, the slots of other groups are free.
		status := alice.Refused(http.StatusTooManyRequests, "TooManyRequests", "GET", things("good.example.com"), "")
		if !strings.Contains(status.Message, service) {
			t.Errorf("message: %s", status.Message)
		}
		alice.Get("/api/v1/namespaces/default/configmaps")
		alice.Get("/apis")
		cancel()
		hanging.Wait()
		harness.Eventually(t, "a place is free", func() error {
			good.answer(emptyList)
			if code, err := alice.Try(t.Context(), "GET", things("good.example.com"), ""); code != http.StatusOK {
				return fmt.Errorf("%d, %v", code, err)
			}
			return nil
		})
		good.answer(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
		harness.Eventually(t, "a refusal in time", func() error {
			r := alice.Do("GET", things("good.example.com")+"?timeout=2s", "")
			// On a busy machine, the time of the whole request may end first.
			if r.Code == http.StatusGatewayTimeout {
				return fmt.Errorf("%s", r.Raw)
			}
			if status := r.Refusal(http.StatusServiceUnavailable, "ServiceUnavailable"); !strings.Contains(status.Message, service) {
				t.Errorf("message: %s", status.Message)
			}
			return nil
		})
	})
	t.Run("S22.12 gone during a watch", func(t *testing.T) {
		good.answer(func(w http.ResponseWriter, req *http.Request) {
			fmt.Fprintln(w, `{"type":"ADDED","object":{"kind":"Thing"}}`)
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		})
		watch := alice.Watch(things("good.example.com") + "?watch=1")
		if e := watch.Next(); e.Type != "ADDED" {
			t.Errorf("event: %+v", e)
		}
		good.CloseClientConnections()
		if e, err := watch.Read(); err == nil {
			t.Errorf("after the end: %+v", e)
		}
		good.answer(emptyList)
		alice.Get(things("good.example.com"))
	})
	t.Run("S22.12 a wrong certificate", func(t *testing.T) {
		defer kubectl.For(t)()
		wrong := newFake(t, "wrong.example.com", emptyList)
		wrong.bundle = harness.NewAuthority(t, "another").Bundle
		wrong.register(t, kubectl)
		available(t, admin, "v1.wrong.example.com", "False (FailedDiscoveryCheck)")
		status := alice.Refused(http.StatusServiceUnavailable, "ServiceUnavailable", "GET", things("wrong.example.com"), "")
		if !strings.Contains(status.Message, "service fakes/wrong:") || !strings.Contains(status.Message, "certificate signed by unknown authority") {
			t.Errorf("message: %s", status.Message)
		}
		alice.Get(things("good.example.com"))
	})
	t.Run("S22.6 no service", func(t *testing.T) {
		admin.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/fakes/services/good", "")
		harness.Eventually(t, "the condition says why", func() error {
			condition := admin.Get("/apis/apiregistration.k8s.io/v1/apiservices/v1.good.example.com").At("status", "conditions", "0")
			out := fmt.Sprintf("%v: %v", harness.At(condition, "reason"), harness.At(condition, "message"))
			if out != `ServiceNotFound: service/good in "fakes" is not present` {
				return errors.New(out)
			}
			return nil
		})
		metrics := main.HTTP(t, nil).Metrics()
		if v := metrics.Value("aggregator_unavailable_apiservice", `name="v1.good.example.com"`); v != 1 {
			t.Errorf("S22.7 unavailable: %v", v)
		}
		if !strings.Contains(string(metrics), "\naggregator_unavailable_apiservice{name=\"v1.apps\"} 0\n") {
			t.Error("S22.7: there is no metric of a local APIService, or it is not available")
		}
		if v := metrics.Value("aggregator_unavailable_apiservice_total", `name="v1.good.example.com"`, `reason="ServiceNotFound"`); v != 1 {
			t.Errorf("S22.7 counted: %v", v)
		}
	})
}
