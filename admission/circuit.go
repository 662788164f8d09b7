package admission

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Target is how it stands with a webhook server that was called lately by a
// plugin. Each plugin finds out for itself.
type Target struct {
	// Plugin is the name of the plugin.
	Plugin string
	call.Target
}

// Targets returns the webhook servers that were called lately, sorted by name,
// then by plugin.
func (e *Engine) Targets() []Target {
	var list []Target
	for _, c := range e.callers {
		for _, t := range c.Targets() {
			list = append(list, Target{c.plugin, t})
		}
	}
	slices.SortStableFunc(list, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Skipped is a webhook that is not called, because its server could not be reached
// several times in a row.
type Skipped struct {
	Hook   *registration.Hook
	Target call.Target
}

// Skipped returns which webhooks of a snapshot are not called now, by source and
// in order (S5.1). It is cheap when there are none.
func (e *Engine) Skipped(s *snapshot.Snapshot) []Skipped {
	var list []Skipped
	for _, c := range e.callers {
		if !slices.ContainsFunc(c.Targets(), func(t call.Target) bool { return t.State != call.TargetClosed }) {
			continue
		}
		for _, h := range s.Hooks(c.source) {
			if t, ok := c.TargetOf(h.Hook); ok && t.State != call.TargetClosed {
				list = append(list, Skipped{h.Hook, t})
			}
		}
	}
	return list
}

// openCircuits is what the process serves; engines in one process have one
// registry.
var openCircuits = sync.OnceValue(func() *metrics.GaugeVec {
	g := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "gatehouse", Subsystem: "admission_webhook", Name: "circuit_open",
		Help:           "Webhook servers that are not called because they could not be reached several times in a row, by plugin and HOST:PORT. 0 when they are called again.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"plugin", "target"})
	legacyregistry.MustRegister(g)
	return g
})

// observeCircuits counts and logs when the webhook servers of a plugin are
// skipped.
func observeCircuits(plugin string) func(call.Circuit) {
	gauge := openCircuits()
	return func(c call.Circuit) {
		if !c.Open {
			gauge.WithLabelValues(plugin, c.Target).Dec()
			klog.InfoS("Webhook server is called again", "plugin", plugin, "target", c.Target)
			return
		}
		gauge.WithLabelValues(plugin, c.Target).Inc()
		klog.ErrorS(c.Err, "Webhook server is not called until it answers: calls of it failed in a row; requests get what failurePolicy says, at once",
			"plugin", plugin, "target", c.Target, "failures", c.Failures, "since", c.Since)
	}
}
