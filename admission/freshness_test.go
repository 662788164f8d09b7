package admission

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// TestRegistrationsAge proves S10.6: the age counts from the beginning of the last successful read,
// and grows while reads fail or hang.
func TestRegistrationsAge(t *testing.T) {
	type figures struct {
		Age               float64
		Succeeded, Failed uint64
		// Slow counts the reads that took more than a second.
		Slow float64
	}
	const slow = 3 * time.Second
	refused := errors.New("connection refused")
	for _, tc := range []struct {
		name string
		// reads take slow each, one after the other; the measurement begins a second after the last
		// one.
		reads []error
		want  figures
	}{
		{"S10.6 nothing read", nil, figures{}},
		{"S10.6 never succeeded", []error{refused, refused}, figures{Age: 7, Failed: 2, Slow: 2}},
		{"S10.6 succeeded", []error{refused, nil}, figures{Age: 4, Succeeded: 1, Failed: 1, Slow: 2}},
		{"S10.6 no longer", []error{nil, nil, refused, refused}, figures{Age: 10, Succeeded: 2, Failed: 2, Slow: 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry, f := metrics.NewKubeRegistry(), newFreshness()
				registry.MustRegister(f.reads, f.slow)
				registry.RawMustRegister(f.gauge())
				for _, err := range tc.reads {
					begin := time.Now()
					time.Sleep(slow)
					f.count(snapshot.Read{Begin: begin, Latency: slow, Err: err})
				}
				time.Sleep(time.Second)
				families, err := registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				var got figures
				for _, family := range families {
					for _, m := range family.Metric {
						switch {
						case family.GetName() == "gatehouse_admission_registrations_age_seconds":
							got.Age = m.GetGauge().GetValue()
						case family.GetName() == "gatehouse_admission_slow_reads_total":
							got.Slow = m.GetCounter().GetValue()
						case m.Label[0].GetValue() == "success":
							got.Succeeded = m.GetHistogram().GetSampleCount()
						default:
							got.Failed = m.GetHistogram().GetSampleCount()
						}
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}
