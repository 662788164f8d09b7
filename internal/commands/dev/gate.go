package dev

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// gate holds requests to the program while the program is replaced.
type gate struct {
	// local reports whether a host is the program.
	local func(host string) bool

	mu sync.Mutex
	// held is closed when requests may continue; nil while the gate is open. idle is closed when no
	// request runs; nil if there is no waiter.
	held, idle chan struct{}
	running    int
	// transports have the connections to the program.
	transports []http.RoundTripper
}

// gateOf returns the gate of a program. The first program has the host of URLs on this machine.
func gateOf(p *program, first bool) *gate {
	var hosts []string
	if first {
		hosts = append(hosts, localhost)
	}
	for _, service := range p.services {
		hosts = append(hosts, hostsOf(service)...)
	}
	return &gate{local: func(host string) bool { return slices.Contains(hosts, host) }}
}

// wrap returns a transport whose requests to the program pass the gate.
func (g *gate) wrap(next http.RoundTripper) http.RoundTripper {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.transports = append(g.transports, next)
	return gated{g, next}
}

type gated struct {
	gate *gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t gated) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.gate.local(r.URL.Hostname()) {
		return t.next.RoundTrip(r)
	}
	t.gate.enter(r.Context())
	leave := sync.OnceFunc(t.gate.leave)
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		leave()
		return nil, err
	}
	answer.Body = body{answer.Body, leave}
	return answer, nil
}

// body is the body of a response. Its request has ended when body is closed.
type body struct {
	io.ReadCloser
	leave func()
}

func (b body) Close() error {
	defer b.leave()
	return b.ReadCloser.Close()
}

// enter waits until the gate opens, for at most half of the request's remaining time. The other half is
// left for the program.
func (g *gate) enter(ctx context.Context) {
	if held := g.pass(false); held != nil {
		patience := time.Hour
		if deadline, ok := ctx.Deadline(); ok {
			patience = time.Until(deadline) / 2
		}
		late := time.NewTimer(patience)
		defer late.Stop()
		for waiting := true; held != nil && waiting; {
			select {
			case <-held:
				held = g.pass(false)
			case <-late.C:
				waiting = false
			case <-ctx.Done():
				waiting = false
			}
		}
		if held != nil {
			g.pass(true)
		}
	}
}

// pass counts a request as running. If the gate is closed and anyway is not set, it does not count the
// request, and returns the channel to wait for.
func (g *gate) pass(anyway bool) (held chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil && !anyway {
		return g.held
	}
	g.running++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// hold closes the gate, and waits until the running requests are answered, at most for the time
// patience. Existing connections to the program are not reused.
func (g *gate) hold(patience time.Duration) {
	g.mu.Lock()
	if g.held == nil {
		g.held = make(chan struct{})
	}
	idle := make(chan struct{})
	if g.running == 0 {
		close(idle)
	} else {
		g.idle = idle
	}
	g.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = nil
	for _, t := range g.transports {
		(&http.Client{Transport: t}).CloseIdleConnections()
	}
}

// release opens the gate.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil {
		close(g.held)
		g.held = nil
	}
}
