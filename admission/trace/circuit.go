package trace

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// Circuit is the event that a webhook server is not called from now on, or is called
// again.
type Circuit struct {
	// Target is the webhook server, HOST:PORT.
	Target string
	// Open tells that it is not called. Then Failures is how many calls have failed in a
	// row, the first at Since, the latest with Err.
	Open     bool
	Failures int
	Since    time.Time
	Err      error
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

// Circuits returns what counts and logs the circuits of a plugin's webhook servers.
func Circuits(plugin string) func(Circuit) {
	gauge := openCircuits()
	return func(c Circuit) {
		if !c.Open {
			gauge.WithLabelValues(plugin, c.Target).Dec()
			klog.InfoS("Webhook server is called again", "plugin", plugin, "target", c.Target)
			return
		}
		gauge.WithLabelValues(plugin, c.Target).Inc()
		klog.ErrorS(c.Err, "Webhook server is not called until it answers: calls of it failed in a row; requests get what failurePolicy says, or an error when it converts, at once",
			"plugin", plugin, "target", c.Target, "failures", c.Failures, "since", c.Since)
	}
}
