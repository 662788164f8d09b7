package initialization

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

func TestMetrics(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	m := newMeasures(registry.MustRegister)
	pods := schema.GroupResource{Resource: "pods"}
	for _, e := range []Event{
		{Kind: Followed, Resource: pods}, {Kind: Followed, Resource: pods}, {Kind: Left, Resource: pods},
		{Kind: WaitBegan, Resource: pods}, {Kind: WaitBegan, Resource: pods}, {Kind: WaitEnded, Resource: pods},
		{Kind: Acted, Resource: pods, Initializer: "a.example.com", After: 20 * time.Millisecond},
		{Kind: TimedOutIgnored, Resource: pods, Initializer: "a.example.com", After: 5 * time.Second},
		{Kind: TimedOutFailed, Resource: pods, Initializer: "b.example.com", After: 5 * time.Second},
		{Kind: Repaired, Resource: pods, Initializer: "a.example.com"},
		{Kind: Discarded, Resource: pods},
		{Kind: Abandoned, Resource: pods, Initializer: "a.example.com"},
	} {
		m.count(e)
	}
	const want = `
# HELP gatehouse_initializers_abandoned_releases_total [ALPHA] Finalizers that the server removed because their initializer did not do so in time, from objects that were deleted before they were initialized, by initializer and resource. Resources that the initializer allocated for them may be left.
# TYPE gatehouse_initializers_abandoned_releases_total counter
gatehouse_initializers_abandoned_releases_total{group="",name="a.example.com",resource="pods"} 1
# HELP gatehouse_initializers_failures_total [ALPHA] Objects that were deleted because an initializer set a failure result, by resource.
# TYPE gatehouse_initializers_failures_total counter
gatehouse_initializers_failures_total{group="",resource="pods"} 1
# HELP gatehouse_initializers_read_repairs_total [ALPHA] Initializers that a read removed from an object that had been uninitialized too long, by initializer and resource.
# TYPE gatehouse_initializers_read_repairs_total counter
gatehouse_initializers_read_repairs_total{group="",name="a.example.com",resource="pods"} 1
# HELP gatehouse_initializers_timeouts_total [ALPHA] Initializers that did not act in time, by initializer, resource and failure policy. With Ignore the initializer was removed; with Fail the object stays uninitialized.
# TYPE gatehouse_initializers_timeouts_total counter
gatehouse_initializers_timeouts_total{group="",name="a.example.com",policy="Ignore",resource="pods"} 1
gatehouse_initializers_timeouts_total{group="",name="b.example.com",policy="Fail",resource="pods"} 1
# HELP gatehouse_initializers_uninitialized_objects [ALPHA] Uninitialized objects that this server tracks, by resource: a create waits for the object, or an initializer must act within its timeout.
# TYPE gatehouse_initializers_uninitialized_objects gauge
gatehouse_initializers_uninitialized_objects{group="",resource="pods"} 1
# HELP gatehouse_initializers_waiting_creates [ALPHA] Create requests that wait for their object to be initialized, by resource.
# TYPE gatehouse_initializers_waiting_creates gauge
gatehouse_initializers_waiting_creates{group="",resource="pods"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"gatehouse_initializers_abandoned_releases_total", "gatehouse_initializers_failures_total", "gatehouse_initializers_read_repairs_total", "gatehouse_initializers_timeouts_total",
		"gatehouse_initializers_uninitialized_objects", "gatehouse_initializers_waiting_creates"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "gatehouse_initializers_duration_seconds" {
			if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 0.02 {
				t.Errorf("latencies: %v", h)
			}
			return
		}
	}
	t.Error("no latencies")
}
