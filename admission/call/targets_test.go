package call

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// counter counts the open connections of a server.
type counter struct {
	opened, open atomic.Int32
	mu           sync.Mutex
	changed      chan struct{}
}

func (c *counter) track(s *httptest.Server) {
	c.changed = make(chan struct{})
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			c.opened.Add(1)
			c.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			c.open.Add(-1)
		default:
			return
		}
		c.mu.Lock()
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
	}
}

// await blocks until the given number of connections are open.
func (c *counter) await(t *testing.T, want int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if c.open.Load() == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%d connections are open, want %d", c.open.Load(), want)
		}
	}
}

func TestConnectionsAreShared(t *testing.T) {
	ca := newAuthority(t, "ca")
	var conns counter
	s := serve(t, ca.serving(t, "check.shop.svc", "127.0.0.1"), http.HandlerFunc(allow), conns.track)
	c := newCaller(t, Options{Resolver: fixed(s.Listener.Addr().String())})
	steps := []struct {
		name string
		hook *registration.Entry
		want int32
	}{
		{"S8.7 first call", urlHook(s.URL+"/a", ca.bundle), 1},
		{"S8.7 keep-alive", urlHook(s.URL+"/a", ca.bundle), 1},
		{"S8.7 another path of the same server", urlHook(s.URL+"/b", ca.bundle), 1},
		{"S8.7 a changed bundle makes a new client", urlHook(s.URL+"/a", append([]byte("\n"), ca.bundle...)), 2},
		{"S8.3 a service", serviceHook(443, "/", ca.bundle), 3},
		{"S8.7 the service again, another name", func() *registration.Entry {
			h := serviceHook(443, "/other", ca.bundle)
			h.Name = "other.shop.example.com"
			return h
		}(), 3},
	}
	for _, st := range steps {
		mustCall(t, c, st.hook)
		if got := conns.opened.Load(); got != st.want {
			t.Errorf("%s: %d connections so far, want %d", st.name, got, st.want)
		}
	}
	c.Close()
	conns.await(t, 0)
	if _, err := c.Call(t.Context(), invocation(steps[0].hook)); err == nil || err.Class != Client {
		t.Errorf("a closed caller gave %v", err)
	}
}

func TestProtocols(t *testing.T) {
	const parallel = 10
	ca := newAuthority(t, "ca")
	cases := []struct {
		name  string
		hook  func(s *httptest.Server) *registration.Entry
		proto string
		least int32
		most  int32
	}{
		{"S8.6 loopback URLs may use HTTP/2", func(s *httptest.Server) *registration.Entry { return urlHook(s.URL, ca.bundle) }, "HTTP/2.0", 1, 1},
		{"S8.6 localhost may use HTTP/2", func(s *httptest.Server) *registration.Entry {
			return urlHook(strings.Replace(s.URL, "127.0.0.1", "localhost", 1), ca.bundle)
		}, "HTTP/2.0", 1, 1},
		{"S8.6 services use HTTP/1.1", func(s *httptest.Server) *registration.Entry { return serviceHook(443, "/", ca.bundle) }, "HTTP/1.1", parallel, parallel + 1},
		{"S8.6 other URLs use HTTP/1.1", func(s *httptest.Server) *registration.Entry { return urlHook("https://hook.example.com", ca.bundle) }, "HTTP/1.1", parallel, parallel + 1},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			var conns counter
			var waiting sync.WaitGroup
			waiting.Add(1)
			s := serve(t, ca.serving(t, "check.shop.svc", "hook.example.com", "127.0.0.1", "localhost"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != tt.proto {
					t.Errorf("called by %s, want %s", r.Proto, tt.proto)
				}
				waiting.Done()
				waiting.Wait()
				allow(w, r)
			}), func(s *httptest.Server) { conns.track(s); s.EnableHTTP2 = true })
			dialer := net.Dialer{}
			c := newCaller(t, Options{
				Resolver: fixed(s.Listener.Addr().String()),
				Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return dialer.DialContext(ctx, network, s.Listener.Addr().String())
				},
			})
			hook := tt.hook(s)
			mustCall(t, c, hook)
			for range 2 { // the second time all connections are there
				waiting.Add(parallel)
				var calls sync.WaitGroup
				for range parallel {
					calls.Go(func() {
						if _, err := c.Call(t.Context(), invocation(hook)); err != nil {
							t.Error(err)
						}
					})
				}
				calls.Wait()
			}
			if got := conns.opened.Load(); got < tt.least || got > tt.most {
				t.Errorf("%d connections, want %d to %d", got, tt.least, tt.most)
			}
		})
	}
}

func TestEvictionClosesConnections(t *testing.T) {
	ca := newAuthority(t, "ca")
	var conns counter
	hold, release := make(chan struct{}), make(chan struct{})
	s := serve(t, ca.serving(t, "127.0.0.1"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(hold)
			<-release
		}
		allow(w, r)
	}), conns.track)
	c := newCaller(t, Options{maxTargets: 2})
	bundle := func(n int) []byte { return append([]byte(strings.Repeat("\n", n)), ca.bundle...) }

	mustCall(t, c, urlHook(s.URL, bundle(0)))
	mustCall(t, c, urlHook(s.URL, bundle(1)))
	mustCall(t, c, urlHook(s.URL, bundle(0)))
	conns.await(t, 2)
	mustCall(t, c, urlHook(s.URL, bundle(2))) // drops 1, the least recently used
	conns.await(t, 2)
	mustCall(t, c, urlHook(s.URL, bundle(0)))
	if got := conns.opened.Load(); got != 3 {
		t.Errorf("S8.7: %d connections were opened, want 3: the wrong target was dropped", got)
	}

	// A target that is dropped during a call keeps its connection only for that call.
	slow := make(chan *Error)
	go func() {
		_, err := c.Call(t.Context(), invocation(urlHook(s.URL+"/slow", bundle(3))))
		slow <- err
	}()
	<-hold
	mustCall(t, c, urlHook(s.URL, bundle(4)))
	mustCall(t, c, urlHook(s.URL, bundle(5)))
	conns.await(t, 3)
	close(release)
	if err := <-slow; err != nil {
		t.Fatal(err)
	}
	conns.await(t, 2)
	c.Close()
	conns.await(t, 0)
}

// TestCyclesLeaveNothingBehind registers, calls and removes webhooks, each with another bundle.
// GATEHOUSE_CYCLES is the number of cycles; the claim is for 10,000.
func TestCyclesLeaveNothingBehind(t *testing.T) {
	cycles := 300
	if s := os.Getenv("GATEHOUSE_CYCLES"); s != "" {
		var err error
		if cycles, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	const most = 20
	ca := newAuthority(t, "ca")
	var conns counter
	s := serve(t, ca.serving(t, "127.0.0.1", "check.shop.svc"), http.HandlerFunc(allow), conns.track)
	before := runtime.NumGoroutine()
	c := newCaller(t, Options{maxTargets: most, Resolver: fixed(s.Listener.Addr().String())})
	for i := range cycles {
		h := urlHook(s.URL, nil)
		if i%2 == 0 {
			h = serviceHook(443, "", nil)
		}
		h.ClientConfig.CABundle = fmt.Appendf(nil, "%d\n%s", i, ca.bundle)
		mustCall(t, c, h)
		if got := len(c.targets.mu.byKey); got > most || got != c.targets.mu.recent.Len() {
			t.Fatalf("%d targets in a cache of %d", got, most)
		}
	}
	conns.await(t, int32(min(cycles, most)))
	c.Close()
	conns.await(t, 0)
	awaitGoroutines(t, before)
}

// awaitGoroutines waits for goroutines that have been stopped.
func awaitGoroutines(t *testing.T, want int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > want; runtime.Gosched() {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, want %d:\n%s", runtime.NumGoroutine(), want, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestEndpointsHaveTheirOwnConnections(t *testing.T) {
	ca := newAuthority(t, "ca")
	answer := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,"allowed":true,"warnings":[%q]}}`, testUID, name)
		}
	}
	var first, second counter
	a := serve(t, ca.serving(t, "check.shop.svc"), answer("a"), first.track).Listener.Addr().String()
	b := serve(t, ca.serving(t, "check.shop.svc"), answer("b"), second.track).Listener.Addr().String()
	current := a
	c := newCaller(t, Options{Resolver: ResolverFunc(func(context.Context, string, string, int32) ([]string, error) { return []string{current}, nil })})
	hook := serviceHook(443, "/", ca.bundle)
	for _, step := range []struct{ endpoint, want string }{{a, "a"}, {b, "b"}, {a, "a"}, {b, "b"}} {
		current = step.endpoint
		if got := mustCall(t, c, hook).Warnings[0]; got != step.want {
			t.Errorf("S8.3: endpoint %s answered, want %s", got, step.want)
		}
	}
	if a, b := first.opened.Load(), second.opened.Load(); a != 1 || b != 1 {
		t.Errorf("S8.3: %d and %d connections, want one to each endpoint", a, b)
	}
}

func TestFailover(t *testing.T) {
	ca := newAuthority(t, "ca")
	var served atomic.Int32
	up := serve(t, ca.serving(t, "check.shop.svc"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		allow(w, r)
	}), nil).Listener.Addr().String()
	failing := serve(t, ca.serving(t, "check.shop.svc"), respond(503, "", ""), nil).Listener.Addr().String()
	impostor := serve(t, newAuthority(t, "other").serving(t, "check.shop.svc"), http.HandlerFunc(allow), nil).Listener.Addr().String()
	closes := listener(t, func(c net.Conn) { c.Close() })
	breaks := listener(t, func(conn net.Conn) {
		s := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{ca.serving(t, "check.shop.svc")}})
		s.Read(make([]byte, 1))
		s.Close()
	})
	const blackhole = "blackhole:443"
	down, down2 := refused(t), refused(t)
	dialer := net.Dialer{}
	cases := []struct {
		name      string
		endpoints []string
		ok        bool
		tried     []string
	}{
		{"S8.4 the next endpoint after a refused dial", []string{down, up}, true, nil},
		{"S8.4 the next endpoint after a failed handshake", []string{closes, down, up}, true, nil},
		{"S8.4 within the deadline after a dial without answer", []string{blackhole, up}, true, nil},
		{"S8.4 all refused", []string{down, down2}, false, []string{down, down2}},
		{"S8.4 a sent request is not sent again", []string{breaks, up}, false, []string{breaks}},
		{"S8.4 an answer is an answer", []string{failing, up}, false, []string{failing}},
		{"S8.4 a wrong certificate is the end", []string{impostor, up}, false, []string{impostor}},
		{"S8.4 none", nil, false, nil},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			served.Store(0)
			c := newCaller(t, Options{Resolver: fixed(tt.endpoints...), Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr == blackhole {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return dialer.DialContext(ctx, network, addr)
			}})
			hook := serviceHook(443, "/", ca.bundle)
			hook.Timeout = 2 * time.Second
			_, err := c.Call(t.Context(), invocation(hook))
			if (err == nil) != tt.ok || (served.Load() == 1) != tt.ok {
				t.Fatalf("error %v, served %d times", err, served.Load())
			}
			if err != nil && strings.Join(err.Endpoints, " ") != strings.Join(tt.tried, " ") {
				t.Errorf("tried %v, want %v", err.Endpoints, tt.tried)
			}
			if err != nil && len(tt.tried) > 0 && contains(err.Error(), strings.Join(tt.tried, ", ")) != "" {
				t.Errorf("%q does not name the endpoints", err)
			}
		})
	}
}

func TestDNSIsTheDefault(t *testing.T) {
	ca := newAuthority(t, "ca")
	at := serve(t, ca.serving(t, "check.shop.svc"), http.HandlerFunc(allow), nil).Listener.Addr().String()
	var dialed []string
	dialer := net.Dialer{}
	c := newCaller(t, Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed = append(dialed, addr)
		return dialer.DialContext(ctx, network, at)
	}})
	mustCall(t, c, serviceHook(8443, "/", ca.bundle))
	if len(dialed) != 1 || dialed[0] != "check.shop.svc:8443" {
		t.Errorf("S8.3: dialed %v", dialed)
	}
	for _, s := range []registration.Service{{Namespace: "shop", Port: 1}, {Name: "check", Port: 1}} {
		hook := serviceHook(443, "/", ca.bundle)
		hook.ClientConfig.Service = &s
		if _, err := c.Call(t.Context(), invocation(hook)); err == nil || !strings.Contains(err.Error(), "cannot resolve an empty service name") {
			t.Errorf("S8.3: %+v gave %v", s, err)
		}
	}
}
