package series

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

func names(t *testing.T, r prometheus.Gatherer) []string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			text := f.GetName()
			for _, l := range m.GetLabel() {
				text += " " + l.GetValue()
			}
			all = append(all, text)
		}
	}
	return all
}

// S22.24: series of every kind of metric are dropped by their labels, and all others stay.
func TestDrop(t *testing.T) {
	r := metrics.NewKubeRegistry()
	both := struct {
		prometheus.Registerer
		prometheus.Gatherer
	}{r.Registerer(), r.Gatherer()}
	labels := []string{"resource", "group"}
	counter := metrics.NewCounterVec(&metrics.CounterOpts{Name: "a_counter", Help: "h"}, labels)
	gauge := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: "a_gauge", Help: "h", StabilityLevel: metrics.BETA}, append(labels, "verb"))
	histogram := metrics.NewHistogramVec(&metrics.HistogramOpts{Name: "a_histogram", Help: "h"}, labels)
	plain := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "plain", Help: "h"}, labels)
	other := metrics.NewCounterVec(&metrics.CounterOpts{Name: "other", Help: "h"}, []string{"group"})
	single := metrics.NewCounter(&metrics.CounterOpts{Name: "single", Help: "h"})
	r.MustRegister(counter, gauge, histogram, other, single)
	r.RawMustRegister(plain)
	for _, group := range []string{"stays", "gone"} {
		counter.WithLabelValues("things", group).Inc()
		gauge.WithLabelValues("things", group, "GET").Inc()
		gauge.WithLabelValues("things", group, "LIST").Inc()
		histogram.WithLabelValues("things", group).Observe(1)
		plain.WithLabelValues("things", group).Inc()
		other.WithLabelValues(group).Inc()
	}
	single.Inc()
	dropped, err := Drop(both, Of{"", map[string]string{"group": "gone", "resource": "things"}}, Of{"oth", map[string]string{"group": "gone"}}, Of{"never", map[string]string{"group": "stays"}})
	if err != nil || dropped != 6 {
		t.Errorf("%d dropped, error %v; want 6", dropped, err)
	}
	want := []string{"a_counter stays things", "a_gauge stays things GET", "a_gauge stays things LIST", "a_histogram stays things", "other stays", "plain stays things", "single"}
	if got := names(t, both); !slices.Equal(got, want) {
		t.Errorf("left: %q, want %q", got, want)
	}
	// A dropped series restarts from zero.
	counter.WithLabelValues("things", "gone").Inc()
	if got := names(t, both); len(got) != len(want)+1 {
		t.Errorf("left: %q", got)
	}
	if _, err := Drop(failing{both}, Of{"", map[string]string{"group": "gone"}}); err == nil {
		t.Error("there is no error")
	}
	if got := names(t, both); !slices.Equal(got, want) {
		t.Errorf("left: %q, want %q: what was gathered is dropped", got, want)
	}
}

type failing struct{ Registry }

func (f failing) Gather() ([]*dto.MetricFamily, error) {
	found, _ := f.Registry.Gather()
	return found, errors.New("a collector failed")
}

// S22.24: series of a removed subject are dropped after a while, unless the subject is back by
// then.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := metrics.NewCounterVec(&metrics.CounterOpts{Name: "series_test_gone", Help: "h"}, []string{"group"})
		legacyregistry.MustRegister(c)
		defer legacyregistry.Registerer().Unregister(c)
		count := func() string {
			var left []string
			for _, name := range names(t, legacyregistry.DefaultGatherer) {
				if rest, ok := strings.CutPrefix(name, "series_test_gone "); ok {
					left = append(left, rest)
				}
			}
			return strings.Join(left, " ")
		}
		g := NewGone(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			g.Run(ctx)
		}()
		add := func(group string, back bool) {
			c.WithLabelValues(group).Inc()
			g.Add(group, func() bool { return back }, Of{"", map[string]string{"group": group}})
		}
		add("first", false)
		add("back", true)
		time.Sleep(30 * time.Second)
		add("late", false)
		time.Sleep(29 * time.Second)
		if got := count(); got != "back first late" {
			t.Errorf("%q before the time has come", got)
		}
		time.Sleep(2 * time.Minute)
		if got := count(); got != "back" {
			t.Errorf("%q at the end, want back", got)
		}
		cancel()
		<-ended
	})
}
