package trace

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

// Circuit is the opening or closing of the circuit of a webhook server. While the circuit is open,
// the server is not called.
type Circuit struct {
	// Target is the webhook server, HOST:PORT.
	Target string
	// Open reports whether the circuit opens. If so, Failures is the number of failed calls in a
	// row, the first at Since, the latest with Err.
	Open     bool
	Failures int
	Since    time.Time
	Err      error
}

// openCircuits is the gauge of open circuits, shared by all engines in the process.
var openCircuits = sync.OnceValue(func() *metrics.GaugeVec {
	return metric.Registered(metric.Gauge("admission_webhook_circuit_open",
		"1 while calls to a webhook server are skipped because several calls in a row failed, 0 after it answers again, by plugin and HOST:PORT.", "plugin", "target"))
})

// Circuits returns a function that counts and logs changes of the circuits of a plugin's webhook
// servers.
func Circuits(plugin string) func(Circuit) {
	gauge := openCircuits()
	return func(c Circuit) {
		if !c.Open {
			gauge.WithLabelValues(plugin, c.Target).Dec()
			klog.InfoS("Webhook server answers again; resuming calls to it", "plugin", plugin, "target", c.Target)
			return
		}
		gauge.WithLabelValues(plugin, c.Target).Inc()
		klog.ErrorS(c.Err, "Webhook server failed several calls in a row; skipping it until it answers. Admission follows failurePolicy, and conversions fail, at once",
			"plugin", plugin, "target", c.Target, "failures", c.Failures, "since", c.Since)
	}
}
