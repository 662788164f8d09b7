package admission

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

// freshness has the metrics of reads of registrations and of other data for admission (S10.6).
type freshness struct {
	reads *metrics.HistogramVec
	// slow counts reads that took longer than slowRead.
	slow *metrics.CounterVec
	// since is the time from which the age of registrations counts: the beginning of the last
	// successful read, or of the first read if none has succeeded.
	since atomic.Pointer[time.Time]
}

// slowRead is the duration beyond which a read counts as slow. Many slow reads mean that the store
// is overloaded.
const slowRead = time.Second

func newFreshness() *freshness {
	return &freshness{
		reads: metric.Seconds("admission_registrations_read_duration_seconds",
			"Time in seconds to read and compile the registrations of webhooks and initializers, by result: success or error.", []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 30}, "result"),
		slow: metric.Counter("admission_slow_reads_total",
			"Reads of the data that decides requests without an answer within a second, by data (what): registrations, with the namespaces, or params of policies. The store or this server is overloaded.", "what"),
	}
}

// gauge returns the age of registrations, computed when the metrics are collected: the age must
// grow while a read hangs.
func (f *freshness) gauge() metrics.GaugeFunc {
	return metric.Computed("admission_registrations_age_seconds",
		"Seconds since the last successful read of registrations began, or since the first read began if none has succeeded. The server refuses writes while this exceeds --admission-max-staleness.", f.age)
}

func (f *freshness) age() float64 {
	since := f.since.Load()
	if since == nil {
		return 0
	}
	return time.Since(*since).Seconds()
}

func (f *freshness) count(r snapshot.Read) {
	// A late read was counted as slow when it failed.
	if r.Latency > slowRead && !r.Late {
		f.slow.WithLabelValues("registrations").Inc()
	}
	if r.Err == nil {
		f.since.Store(&r.Begin)
		f.reads.WithLabelValues("success").Observe(r.Latency.Seconds())
		return
	}
	f.since.CompareAndSwap(nil, &r.Begin)
	f.reads.WithLabelValues("error").Observe(r.Latency.Seconds())
}

// shared are the metrics of the process.
var shared = sync.OnceValue(func() *freshness {
	f := newFreshness()
	legacyregistry.MustRegister(f.reads, f.slow)
	legacyregistry.RawMustRegister(f.gauge())
	return f
})

// CountRead adds a read of registrations to the metrics of the process at /metrics: the age of
// registrations, and the duration of reads (S10.6). CountRead is meant for the Observer of
// snapshot.Options. Servers in one process share the metrics; the age is set by the last read of
// any server.
func CountRead(r snapshot.Read) { shared().count(r) }

// CountParamsRead adds a read of params and its duration to the same metrics.
func CountParamsRead(took time.Duration) {
	if took > slowRead {
		shared().slow.WithLabelValues("params").Inc()
	}
}
