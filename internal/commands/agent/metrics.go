package agent

import (
	"sync"
	"sync/atomic"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

// The metrics of an Agent.
var (
	events = metric.Counter("agent_events_total",
		"Audit events that came, by result: kept as a trace, unused since the request skips admission or the event has nothing new, unreadable, or refused with the whole request.", "result")
	dropped = metrics.NewCounter(&metrics.CounterOpts{
		Name: "gatehouse_agent_dropped_events_total", StabilityLevel: metrics.ALPHA,
		Help: "Audit events that were dropped, the oldest first, since more came than the agent makes traces of.",
	})
	unshared = metrics.NewCounter(&metrics.CounterOpts{
		Name: "gatehouse_agent_unshared_events_total", StabilityLevel: metrics.ALPHA,
		Help: "Audit events that another replica did not get from this one, since it did not answer, or not in time.",
	})
	admissions = metric.Counter("agent_admissions_total",
		"What webhooks, policies and plugins did to requests, as far as audit events say that did not come from another replica: called (webhooks), rejected, failed_open, changed, or noted what its binding warns of or records. Kind is webhook, policy or plugin, and name is CONFIGURATION/WEBHOOK or the name of the policy or plugin.", "kind", "name", "did")
	held = metric.Computed("agent_trace_bytes",
		"Bytes of the traces that the agent keeps.", func() float64 {
			if a := current.Load(); a != nil {
				return float64(a.ring.Bytes())
			}
			return 0
		})

	current atomic.Pointer[Agent]
	once    sync.Once
)

// registerMetrics registers the metrics of an Agent. A process has one Agent.
func registerMetrics(a *Agent) {
	current.Store(a)
	once.Do(func() {
		legacyregistry.MustRegister(events, dropped, unshared, admissions)
		legacyregistry.RawMustRegister(held)
	})
}
