package console

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// The metrics that the page sends: of calls of webhooks, of evaluations of policies, and of storage.
const (
	callsFamily       = "apiserver_admission_webhook_admission_duration_seconds"
	evaluationsFamily = "gatehouse_admission_policy_evaluations_total"
	sizeFamily        = "apiserver_storage_size_bytes"
	freeFamily        = "gatehouse_storage_free_bytes"
)

// statKey names a webhook or a policy as metrics do: kind is the label type.
type statKey struct{ kind, name string }

func (k statKey) String() string { return k.kind + "/" + k.name }

// policyKinds are the values of the label type for policies.
var policyKinds = map[registration.Source]string{registration.MutatingPolicies: "mutating", registration.ValidatingPolicies: "validating"}

// statOf returns the key of an entry; ok is false if no metric counts it.
func statOf(e *snapshot.Entry) (key statKey, ok bool) {
	switch {
	case e.Webhook != nil && e.Source.Descriptor().Pass == registration.MutatingPass:
		return statKey{"admit", e.Name}, true
	case e.Webhook != nil:
		return statKey{"validating", e.Name}, true
	}
	kind, ok := policyKinds[e.Source]
	return statKey{"policy-" + kind, e.Configuration}, ok
}

// stat is what metrics say of a webhook or a policy. A policy has no buckets.
type stat struct {
	calls, rejected float64
	buckets         map[float64]float64
}

// quantile is a bound of the share q of the calls, by the buckets of the histogram.
func (s *stat) quantile(q float64) string {
	for _, bound := range sorted(s.buckets) {
		if s.buckets[bound] >= q*s.calls && !math.IsInf(bound, 1) {
			return "≤ " + time.Duration(bound*float64(time.Second)).String()
		}
	}
	for i, bounds := len(s.buckets)-1, sorted(s.buckets); i >= 0; i-- {
		if !math.IsInf(bounds[i], 1) {
			return "> " + time.Duration(bounds[i]*float64(time.Second)).String()
		}
	}
	return "not known"
}

func (s *stat) text(key statKey) string {
	if strings.HasPrefix(key.kind, "policy-") {
		return fmt.Sprintf("%s, %.0f violated", counted(s.calls, "evaluation"), s.rejected)
	}
	return fmt.Sprintf("%s, %.0f rejected, p50 %s, p99 %s", counted(s.calls, "call"), s.rejected, s.quantile(.5), s.quantile(.99))
}

// counted writes a number of things.
func counted(n float64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%.0f %ss", n, one)
}

// since is what was counted after an earlier reading; nil when nothing was. ok is false when the
// counters began anew in between.
func (s *stat) since(before *stat) (d *stat, ok bool) {
	if before == nil {
		return s, true
	}
	d = &stat{calls: s.calls - before.calls, rejected: s.rejected - before.rejected, buckets: map[float64]float64{}}
	for bound, n := range s.buckets {
		d.buckets[bound] = n - before.buckets[bound]
	}
	switch {
	case d.calls < 0 || d.rejected < 0:
		return nil, false
	case d.calls == 0:
		return nil, true
	}
	return d, true
}

// calls are the calls and evaluations that metrics count: all since the server started, and those
// after an earlier reading.
type calls struct {
	all, before map[statKey]*stat
	window      time.Duration
}

// calls reads the two readings of metrics that the page sent.
func (s *seen) calls() *calls {
	c := &calls{all: readCalls(s.Metrics)}
	if s.Before != "" && s.Seconds > 0 {
		c.before, c.window = readCalls(s.Before), time.Duration(s.Seconds*float64(time.Second)).Round(time.Second)
	}
	return c
}

// text says how often something was called: in the window, if there is one, and since the start.
func (c *calls) text(key statKey) string {
	all := c.all[key]
	switch {
	case all == nil:
		return "none since the server started"
	case c.before == nil:
		return all.text(key) + " since the server started"
	}
	switch recent, ok := all.since(c.before[key]); {
	case !ok:
		return all.text(key) + " since the server started again"
	case recent == nil:
		return fmt.Sprintf("none in the last %s, %.0f since the server started", c.window, all.calls)
	default:
		return fmt.Sprintf("%s in the last %s, %.0f since the server started", recent.text(key), c.window, all.calls)
	}
}

// readCalls reads the metrics of calls and evaluations.
func readCalls(text string) map[statKey]*stat {
	stats := map[statKey]*stat{}
	at := func(key statKey) *stat {
		if stats[key] == nil {
			stats[key] = &stat{buckets: map[float64]float64{}}
		}
		return stats[key]
	}
	families := parseMetrics(text)
	for _, m := range families[callsFamily].GetMetric() {
		labels := labelsOf(m)
		s := at(statKey{labels["type"], labels["name"]})
		n := float64(m.GetHistogram().GetSampleCount())
		s.calls += n
		if labels["rejected"] == "true" {
			s.rejected += n
		}
		for _, b := range m.GetHistogram().GetBucket() {
			s.buckets[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	}
	for _, m := range families[evaluationsFamily].GetMetric() {
		labels := labelsOf(m)
		s := at(statKey{"policy-" + labels["type"], labels["policy"]})
		s.calls += m.GetCounter().GetValue()
		if labels["outcome"] == "violated" {
			s.rejected += m.GetCounter().GetValue()
		}
	}
	return stats
}

// parseMetrics reads metrics. What cannot be read is as if it were not there.
func parseMetrics(text string) map[string]*dto.MetricFamily {
	if text == "" {
		return nil
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil
	}
	return families
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := make(map[string]string, len(m.Label))
	for _, l := range m.Label {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// storage says how large the databases of etcd are, and how much of the disk is free.
func storage(text string) []string {
	families := parseMetrics(text)
	var list []string
	// Without a line about its type, a family is untyped.
	value := func(m *dto.Metric) float64 { return (m.GetGauge().GetValue() + m.GetUntyped().GetValue()) / (1 << 20) }
	for _, m := range families[sizeFamily].GetMetric() {
		list = append(list, fmt.Sprintf("The database of %s has %.1f MiB.", cmp.Or(labelsOf(m)["storage_cluster_id"], "etcd"), value(m)))
	}
	for _, m := range families[freeFamily].GetMetric() {
		list = append(list, fmt.Sprintf("The disk of the embedded etcd has %.0f MiB free.", value(m)))
	}
	return list
}

// drawCalls says how often webhooks and policies were called, by the names that the drawing of a chain
// gave them.
func drawCalls(_ context.Context, body []byte) (any, error) {
	s := &seen{}
	if err := decode(body, s); err != nil {
		return nil, err
	}
	c := s.calls()
	texts := make(map[string]string, len(c.all))
	for key := range c.all {
		texts[key.String()] = c.text(key)
	}
	return texts, nil
}
