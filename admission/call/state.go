package call

import (
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// TargetState is the circuit state of a webhook server.
type TargetState string

const (
	// TargetClosed: calls are made; the circuit is closed.
	TargetClosed TargetState = "Closed"
	// TargetOpen: calls are not made, because earlier calls failed; the circuit is open.
	TargetOpen TargetState = "Open"
	// TargetProbing: the circuit is open, and one call is trying the server again.
	TargetProbing TargetState = "Probing"
)

// Target is the state of a webhook server that was called recently.
type Target struct {
	// Name is the address of the server, HOST:PORT as in the webhook; NAME.NAMESPACE.svc:PORT for a
	// service. Webhooks with the same address and different CA bundles or credentials have
	// different targets with the same name.
	Name string
	// State is the circuit state of the server.
	State TargetState
	// Failures is the number of failures in a row that count for the Breaker. Since is the end of
	// the first one, and LastError is the latest one. All are zero if the last call succeeded.
	Failures  int
	Since     time.Time
	LastError string
	// NextAttempt is the time of the next attempt to reach the server, if State is TargetOpen. A
	// change of the server's endpoints brings it forward.
	NextAttempt time.Time
	// InFlight is the number of running calls, Waiting the number of calls that wait for a slot,
	// and Latency the recent duration of calls.
	InFlight, Waiting int
	Latency           time.Duration
}

// Targets returns the recently called webhook servers, at most 200, sorted by name.
func (c *Caller) Targets() []Target {
	ts := &c.targets
	ts.mu.Lock()
	var all []*target
	for e := ts.mu.recent.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*target))
	}
	ts.mu.Unlock()
	list := make([]Target, len(all))
	for i, t := range all {
		list[i] = t.state()
	}
	slices.SortStableFunc(list, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// TargetOf returns the Target of a webhook's calls; false if it was not called recently.
func (c *Caller) TargetOf(h *registration.Entry) (Target, bool) {
	u, err := Address(&h.ClientConfig)
	if err != nil {
		return Target{}, false
	}
	k := key{h.ClientConfig.Service != nil, u.Host, string(h.ClientConfig.CABundle), c.options.Credentials.lookup(&h.ClientConfig, u).name}
	ts := &c.targets
	ts.mu.Lock()
	e := ts.mu.byKey[k]
	ts.mu.Unlock()
	if e == nil {
		return Target{}, false
	}
	return e.Value.(*target).state(), true
}

func (t *target) state() Target {
	s := Target{Name: t.key.host, State: TargetClosed}
	s.InFlight, s.Waiting, s.Latency = t.slots.state()
	b := &t.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Failures, s.Since = b.mu.failures, b.mu.since
	if b.mu.last != nil {
		s.LastError = b.mu.last.reason()
	}
	switch {
	case b.mu.open && b.mu.probing:
		s.State = TargetProbing
	case b.mu.open:
		s.State, s.NextAttempt = TargetOpen, b.mu.until
	}
	return s
}
