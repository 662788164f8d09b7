package series

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"k8s.io/component-base/metrics/legacyregistry"
)

// Of selects series: of metrics whose names begin with Prefix, with all of Labels. Labels must not be
// empty.
type Of struct {
	Prefix string
	Labels map[string]string
}

// Registry is a registry of metrics.
type Registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// Drop drops series, and returns their number. A series restarts from zero when it is counted again.
func Drop(registry Registry, all ...Of) (dropped int, err error) {
	families, err := registry.Gather()
	// Gather returns partial results in spite of an error.
	for _, family := range families {
		if len(family.GetMetric()) == 0 {
			continue
		}
		names := labels(family.GetMetric()[0])
		var metric vector
		for _, of := range all {
			if !strings.HasPrefix(family.GetName(), of.Prefix) || !hasAll(names, of.Labels) {
				continue
			}
			if metric == nil {
				if metric = find(registry, family, names); metric == nil {
					break
				}
			}
			dropped += metric.DeletePartialMatch(of.Labels)
		}
	}
	return dropped, err
}

// vector is a metric with labels.
type vector interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

func labels(m *dto.Metric) []string {
	names := make([]string, len(m.GetLabel()))
	for i, label := range m.GetLabel() {
		names[i] = label.GetName()
	}
	return names
}

func hasAll(names []string, wanted map[string]string) bool {
	found := 0
	for _, name := range names {
		if _, ok := wanted[name]; ok {
			found++
		}
	}
	return found == len(wanted)
}

// find returns the vector of a metric family, nil if it cannot be reached.
func find(registry Registry, family *dto.MetricFamily, names []string) vector {
	same := double{prometheus.NewDesc(family.GetName(), family.GetHelp(), names, nil)}
	err := registry.Register(same)
	if err == nil {
		registry.Unregister(same)
		return nil
	}
	var there prometheus.AlreadyRegisteredError
	if !errors.As(err, &there) {
		return nil
	}
	found, _ := there.ExistingCollector.(vector)
	return found
}

// double is a collector with the description of another metric, and without values.
type double struct{ desc *prometheus.Desc }

// Describe implements prometheus.Collector.
func (d double) Describe(to chan<- *prometheus.Desc) { to <- d.desc }

// Collect implements prometheus.Collector.
func (double) Collect(chan<- prometheus.Metric) {}

// Gone drops the series of removed subjects from the served metrics, with a delay: their last requests
// and watches are counted when they end. Use NewGone to create one. It is safe for concurrent use.
type Gone struct {
	after time.Duration
	wake  chan struct{}

	mu   sync.Mutex
	left map[string]departed
}

type departed struct {
	at    time.Time
	back  func() bool
	names []Of
}

// NewGone returns a Gone that drops series some time after the removal of their subject.
func NewGone(after time.Duration) *Gone {
	return &Gone{after: after, wake: make(chan struct{}, 1), left: map[string]departed{}}
}

// Add records the removal of a subject with an id. Its series are kept if back returns true after the
// delay.
func (g *Gone) Add(id string, back func() bool, names ...Of) {
	g.mu.Lock()
	g.left[id] = departed{time.Now(), back, names}
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// Run drops series until ctx ends.
func (g *Gone) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		}
		for g.waits() {
			// Removals in the meantime are dropped together.
			select {
			case <-ctx.Done():
				return
			case <-time.After(g.after):
			}
			if all := g.due(); len(all) > 0 {
				// Metrics that cannot be gathered are not dropped.
				_, _ = Drop(served(), all...)
			}
		}
	}
}

func (g *Gone) waits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.left) > 0
}

// due removes the entries whose delay is over, and returns their series.
func (g *Gone) due() []Of {
	g.mu.Lock()
	left := maps.Clone(g.left)
	for id, d := range left {
		if time.Since(d.at) < g.after {
			delete(left, id)
		} else {
			delete(g.left, id)
		}
	}
	g.mu.Unlock()
	var all []Of
	for _, d := range left {
		if !d.back() {
			all = append(all, d.names...)
		}
	}
	return all
}

// served returns the registry of the served metrics.
func served() Registry {
	return struct {
		prometheus.Registerer
		prometheus.Gatherer
	}{legacyregistry.Registerer(), legacyregistry.DefaultGatherer}
}
