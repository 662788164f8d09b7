package initialization

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

// measures are the metrics of initializers.
type measures struct {
	followed  *metrics.GaugeVec
	waiting   *metrics.GaugeVec
	latency   *metrics.HistogramVec
	timeouts  *metrics.CounterVec
	repairs   *metrics.CounterVec
	failures  *metrics.CounterVec
	abandoned *metrics.CounterVec
}

func newMeasures(register func(...metrics.Registerable)) *measures {
	m := &measures{
		followed: metric.Gauge("initializers_uninitialized_objects",
			"Uninitialized objects that this server tracks, by resource: a create waits for the object, or an initializer must act within its timeout.", "group", "resource"),
		waiting: metric.Gauge("initializers_waiting_creates",
			"Create requests that wait for their object to be initialized, by resource.", "group", "resource"),
		latency: metric.Seconds("initializers_duration_seconds",
			"Time in seconds from an initializer's turn until it acted, by initializer and resource.", []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}, "name", "group", "resource"),
		timeouts: metric.Counter("initializers_timeouts_total",
			"Initializers that did not act in time, by initializer, resource and failure policy. With Ignore the initializer was removed; with Fail the object stays uninitialized.", "name", "group", "resource", "policy"),
		repairs: metric.Counter("initializers_read_repairs_total",
			"Initializers that a read removed from an object that had been uninitialized too long, by initializer and resource.", "name", "group", "resource"),
		failures: metric.Counter("initializers_failures_total",
			"Objects that were deleted because an initializer set a failure result, by resource.", "group", "resource"),
		abandoned: metric.Counter("initializers_abandoned_releases_total",
			"Finalizers that the server removed because their initializer did not do so in time, from objects that were deleted before they were initialized, by initializer and resource. Resources that the initializer allocated for them may be left.", "name", "group", "resource"),
	}
	register(m.followed, m.waiting, m.latency, m.timeouts, m.repairs, m.failures, m.abandoned)
	return m
}

// shared are the metrics that the process serves. All servers in one process share one registry.
var shared = sync.OnceValue(func() *measures { return newMeasures(legacyregistry.MustRegister) })

// Count adds an event to the metrics that the process serves at /metrics. Use it as Options.Observe.
func Count(e Event) { shared().count(e) }

func (m *measures) count(e Event) {
	group, resource := e.Resource.Group, e.Resource.Resource
	switch e.Kind {
	case Acted:
		m.latency.WithLabelValues(e.Initializer, group, resource).Observe(e.After.Seconds())
	case TimedOutIgnored:
		m.timeouts.WithLabelValues(e.Initializer, group, resource, "Ignore").Inc()
	case TimedOutFailed:
		m.timeouts.WithLabelValues(e.Initializer, group, resource, "Fail").Inc()
	case Repaired:
		m.repairs.WithLabelValues(e.Initializer, group, resource).Inc()
	case Discarded:
		m.failures.WithLabelValues(group, resource).Inc()
	case Abandoned:
		m.abandoned.WithLabelValues(e.Initializer, group, resource).Inc()
	case WaitBegan:
		m.waiting.WithLabelValues(group, resource).Inc()
	case WaitEnded:
		m.waiting.WithLabelValues(group, resource).Dec()
	case Followed:
		m.followed.WithLabelValues(group, resource).Inc()
	case Left:
		m.followed.WithLabelValues(group, resource).Dec()
	}
}
