package agent

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/component-base/metrics/testutil"

	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
)

// served starts an Agent that receives events at an address, with the credentials of a directory.
func served(t *testing.T, dir string) (a *Agent, address string) {
	t.Helper()
	a = newAgent()
	server := httptest.NewUnstartedServer(nil)
	server.Config.Handler = a.front(http.NotFoundHandler())
	server.EnableHTTP2 = true
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, selfsigned.CertificateFile), filepath.Join(dir, selfsigned.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return a, server.Listener.Addr().String()
}

// S32.9: an agent forwards its events to its peers, and they do not forward them again.
func TestPeersHaveAllTraces(t *testing.T) {
	dir, service := filepath.Join(t.TempDir(), "agent"), Service{"watch", "agent"}
	if _, err := EnsureCredentials(dir, service); err != nil {
		t.Fatal(err)
	}
	first, firstAddress := served(t, dir)
	second, secondAddress := served(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 4)
	for _, a := range []*Agent{first, second} {
		// Each agent's own address is among its peers, as with a headless service.
		p, err := newPeers(Options{Peers: []string{firstAddress, secondAddress}, Credentials: dir, Service: service}, token)
		if err != nil {
			t.Fatal(err)
		}
		a.peers = p
		for _, run := range []func(context.Context){p.run, a.convert} {
			go func() {
				run(ctx)
				ended <- struct{}{}
			}()
		}
	}
	defer func() {
		cancel()
		for range cap(ended) {
			<-ended
		}
	}()
	within := func(what string, holds func() bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !holds() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s: %v and %v", what, first.kept(t), second.kept(t))
			}
		}
	}
	within("both know their peers", func() bool { return first.peers.waits(secondAddress) && second.peers.waits(firstAddress) })
	first.queue.add(batch{events: []jsontext.Value{jsontext.Value(event("a")), jsontext.Value(event("b"))}, source: "audit webhook of 192.0.2.1"})
	// Unreadable events are not forwarded.
	second.takeAll(batch{events: []jsontext.Value{jsontext.Value(event("c")), jsontext.Value("}"), jsontext.Value(event("d"))}, source: "/var/log/audit.log"})
	within("both have all traces", func() bool { return len(first.kept(t)) == 4 && len(second.kept(t)) == 4 })
	for _, a := range []*Agent{first, second} {
		names := a.kept(t)
		slices.Sort(names)
		if strings.Join(names, "") != "abcd" {
			t.Errorf("the traces are %v", names)
		}
	}
	within("each knows its own address", func() bool { return !first.peers.waits(firstAddress) && !second.peers.waits(secondAddress) })
}

// S32.9: a peer that does not respond receives nothing, and delays nothing.
func TestAPeerThatDoesNotAnswer(t *testing.T) {
	dir, service := filepath.Join(t.TempDir(), "agent"), Service{"watch", "agent"}
	if _, err := EnsureCredentials(dir, service); err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	other, address := served(t, dir)
	a := newAgent()
	p, err := newPeers(Options{Peers: []string{gone.Listener.Addr().String(), address}, Credentials: dir, Service: service}, token)
	if err != nil {
		t.Fatal(err)
	}
	a.peers = p
	queues := map[string]*queue{}
	p.lookup(t.Context(), func(address string, q *queue) { queues[address] = q }, func(string) {})
	if len(queues) != 2 {
		t.Fatalf("%d peers", len(queues))
	}
	registerMetrics(a)
	large := jsontext.Value(`"` + strings.Repeat("x", 1<<20) + `"`)
	before := count(t)
	for range 6 {
		p.share(batch{events: []jsontext.Value{large}, size: len(large)})
	}
	if dropped := count(t) - before; dropped != 2*3 {
		t.Errorf("%v events of two queues are dropped, want 6", dropped)
	}
	p.share(batch{events: []jsontext.Value{jsontext.Value(event("a"))}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	for address, q := range queues {
		go func() {
			p.send(ctx, address, q)
			ended <- struct{}{}
		}()
	}
	b, ok := other.queue.next(ctx)
	for ok && len(b.events) > 0 && string(b.events[len(b.events)-1]) != event("a") {
		b, ok = other.queue.next(ctx)
	}
	if !b.fromPeer {
		t.Errorf("the other peer has %d events", len(b.events))
	}
	cancel()
	<-ended
	<-ended
	for _, name := range []string{"", "10.0.0.1", ":1", "a:"} {
		if _, err := newPeers(Options{Peers: []string{name}, Credentials: dir}, token); err == nil || !strings.Contains(err.Error(), "HOST:PORT") {
			t.Errorf("%q is taken for an address: %v", name, err)
		}
	}
}

// waits reports whether events for an address are queued.
func (p *peers) waits(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queues[address] != nil
}

// count returns the number of events that were not shared.
func count(t *testing.T) float64 {
	t.Helper()
	value, err := testutil.GetCounterMetricValue(unshared)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
