package call

import (
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// TargetState says whether calls to a webhook server are made.
type TargetState string

const (
	// TargetClosed: calls are made; the circuit is closed.
	TargetClosed TargetState = "Closed"
	// TargetOpen: calls are not made, because earlier calls failed; the circuit is open.
	TargetOpen TargetState = "Open"
	// TargetProbing: the circuit is open, and one call is trying the server again.
	TargetProbing TargetState = "Probing"
)

// Target is the state of a webhook server that was called lately.
type Target struct {
	// Name is the address of the server, HOST:PORT as the hook has it; NAME.NAMESPACE.svc:PORT
	// for a service. Hooks with the same address and different CA bundles or credentials have
	// different targets with the same name.
	Name string
	// State says whether calls to the server are made.
	State TargetState
	// Failures is how many failures that count for the Breaker came in a row. Since is when the
	// first of them ended, and LastError is the latest. All are zero when the last call
	// succeeded.
	Failures  int
	Since     time.Time
	LastError string
	// NextAttempt is when the next call may try the server again, if State is TargetOpen. A
	// change of the server's endpoints makes that earlier.
	NextAttempt time.Time
	// InFlight is how many calls are running, Waiting how many wait for a place, and Latency
	// how long a call took lately.
	InFlight, Waiting int
	Latency           time.Duration
}

// Targets returns the webhook servers that were called lately, 200
// at most, sorted by name.
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

// TargetOf returns the Target that a hook's calls go to, false if it was not called lately.
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
