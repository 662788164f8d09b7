package admission

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// freshness are the metrics of how registrations are read (S10.6).
type freshness struct {
	reads *metrics.HistogramVec
	// since is from when the age of registrations counts: the beginning of the
	// last read that succeeded, or of the first one while none has.
	since atomic.Pointer[time.Time]
}

func newFreshness() *freshness {
	return &freshness{
		reads: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: "gatehouse", Subsystem: "admission", Name: "registrations_read_duration_seconds",
			Help:           "Time in seconds to read and compile the registrations of webhooks and initializers, by result: success or error.",
			Buckets:        []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2},
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
	}
}

// gauge is the age, computed whenever it is asked for: that of a read that hangs
// must grow.
func (f *freshness) gauge() metrics.GaugeFunc {
	return metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Namespace: "gatehouse", Subsystem: "admission", Name: "registrations_age_seconds",
		Help:           "Seconds since the last successful read of registrations began, or since the first read began if none has succeeded. The server refuses writes while this exceeds --admission-max-staleness.",
		StabilityLevel: metrics.ALPHA,
	}, f.age)
}

func (f *freshness) age() float64 {
	since := f.since.Load()
	if since == nil {
		return 0
	}
	return time.Since(*since).Seconds()
}

func (f *freshness) count(r snapshot.Read) {
	if r.Err == nil {
		f.since.Store(&r.Begin)
		f.reads.WithLabelValues("success").Observe(r.Latency.Seconds())
		return
	}
	f.since.CompareAndSwap(nil, &r.Begin)
	f.reads.WithLabelValues("error").Observe(r.Latency.Seconds())
}

// shared are the metrics that the process serves.
var shared = sync.OnceValue(func() *freshness {
	f := newFreshness()
	legacyregistry.MustRegister(f.reads)
	legacyregistry.RawMustRegister(f.gauge())
	return f
})

// CountRead adds a read of registrations to the metrics that the process serves at
// /metrics: the age of registrations, and how long reads take (S10.6). It is meant
// for the Observer of snapshot.Options. Servers in one process share the metrics;
// the age is that of the one that read last.
func CountRead(r snapshot.Read) { shared().count(r) }
