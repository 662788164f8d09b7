package initialization

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
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

const namespace, subsystem = "gatehouse", "initializers"

func newMeasures(register func(...metrics.Registerable)) *measures {
	m := &measures{
		followed: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "uninitialized_objects",
			Help:           "Uninitialized objects that this server tracks, by resource: a create waits for the object, or an initializer must act within its timeout.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"group", "resource"}),
		waiting: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "waiting_creates",
			Help:           "Create requests that wait for their object to be initialized, by resource.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"group", "resource"}),
		latency: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "duration_seconds",
			Help:           "Time in seconds from an initializer's turn until it acted, by initializer and resource.",
			Buckets:        []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
			StabilityLevel: metrics.ALPHA,
		}, []string{"name", "group", "resource"}),
		timeouts: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "timeouts_total",
			Help:           "Initializers that did not act in time, by initializer, resource and failure policy. With Ignore the initializer was removed; with Fail the object stays uninitialized.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"name", "group", "resource", "policy"}),
		repairs: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "read_repairs_total",
			Help:           "Initializers that a read removed from an object that had been uninitialized too long, by initializer and resource.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"name", "group", "resource"}),
		failures: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "failures_total",
			Help:           "Objects that were deleted because an initializer set a failure result, by resource.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"group", "resource"}),
		abandoned: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "abandoned_releases_total",
			Help:           "Finalizers that the server removed because their initializer did not do so in time, from objects that were deleted before they were initialized, by initializer and resource. Resources that the initializer allocated for them may be left.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"name", "group", "resource"}),
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
