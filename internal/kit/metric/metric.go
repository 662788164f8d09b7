package metric

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const prefix = "gatehouse_"

// Counter returns an unregistered counter. name has no prefix.
func Counter(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Name: prefix + name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
}

// Gauge returns an unregistered gauge. name has no prefix.
func Gauge(name, help string, labels ...string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: prefix + name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
}

// Computed returns an unregistered gauge whose value a function returns at each collection. name has no prefix.
func Computed(name, help string, value func() float64) metrics.GaugeFunc {
	return metrics.NewGaugeFunc(&metrics.GaugeOpts{Name: prefix + name, Help: help, StabilityLevel: metrics.ALPHA}, value)
}

// Seconds returns an unregistered histogram of durations. name has no prefix, and buckets are in seconds.
func Seconds(name, help string, buckets []float64, labels ...string) *metrics.HistogramVec {
	return metrics.NewHistogramVec(&metrics.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA}, labels)
}

// Registered registers a metric with the metrics that the process serves and returns it, or the equal metric that another
// package has registered before. It panics if a different metric has the same name.
func Registered[M metrics.Registerable](m M) M {
	err := legacyregistry.Register(m)
	var earlier prometheus.AlreadyRegisteredError
	if errors.As(err, &earlier) {
		if same, ok := earlier.ExistingCollector.(M); ok {
			return same
		}
	}
	if err != nil {
		panic(fmt.Sprintf("a metric cannot be registered: %v", err))
	}
	return m
}
