package console

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// The metrics that views show: webhook calls, policy evaluations, and storage.
const (
	callsFamily       = "apiserver_admission_webhook_admission_duration_seconds"
	evaluationsFamily = "gatehouse_admission_policy_evaluations_total"
	sizeFamily        = "apiserver_storage_size_bytes"
	freeFamily        = "gatehouse_storage_free_bytes"
)

// statOf returns the key of an entry in the metrics; ok is false if no metric counts it.
func statOf(e *snapshot.Entry) (key string, ok bool) {
	switch {
	case e.Webhook != nil && e.Source.Descriptor().Pass == registration.MutatingPass:
		return "admit/" + e.Name, true
	case e.Webhook != nil:
		return "validating/" + e.Name, true
	case e.Source == registration.MutatingPolicies:
		return policyPrefix + "mutating/" + e.Configuration, true
	}
	return policyPrefix + "validating/" + e.Configuration, e.Source == registration.ValidatingPolicies
}

// policyPrefix begins the keys of policies in counts.
const policyPrefix = "policy-"

// counts are the metrics of webhooks and policies, by TYPE/NAME.
type counts map[string]stat

// stat has the metrics of a webhook or a policy. A policy has no buckets.
type stat struct {
	Calls    float64           `json:"calls"`
	Rejected float64           `json:"rejected"`
	Buckets  map[bound]float64 `json:"buckets,omitempty"`
}

// bound is the upper bound of a bucket, in seconds.
type bound float64

// MarshalText implements encoding.TextMarshaler.
func (b bound) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(b), 'g', -1, 64), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *bound) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	*b = bound(f)
	return err
}

func (b bound) String() string { return time.Duration(float64(b) * float64(time.Second)).String() }

// quantile returns a bound for the share q of the calls, from the buckets of the histogram.
func (s *stat) quantile(q float64) string {
	bounds := sorted(s.Buckets)
	for _, b := range bounds {
		if s.Buckets[b] >= q*s.Calls {
			return "≤ " + b.String()
		}
	}
	if len(bounds) == 0 {
		return "not known"
	}
	return "> " + bounds[len(bounds)-1].String()
}

func (s *stat) text(key string) string {
	if strings.HasPrefix(key, policyPrefix) {
		return fmt.Sprintf("%s, %.0f violated", report.Count(int(s.Calls), "evaluation"), s.Rejected)
	}
	return fmt.Sprintf("%s, %.0f rejected, p50 %s, p99 %s", report.Count(int(s.Calls), "call"), s.Rejected, s.quantile(.5), s.quantile(.99))
}

// since returns the difference from an earlier reading. ok is false if the counters were reset in
// between.
func (s *stat) since(before stat) (d stat, ok bool) {
	d = stat{s.Calls - before.Calls, s.Rejected - before.Rejected, map[bound]float64{}}
	for b, n := range s.Buckets {
		d.Buckets[b] = n - before.Buckets[b]
	}
	return d, d.Calls >= 0 && d.Rejected >= 0
}

// window is an earlier reading of the metrics, which the page keeps. The server keeps none.
type window struct {
	// Before are the counts that the page received Seconds ago; nil if it has none.
	Before  counts  `json:"before"`
	Seconds float64 `json:"seconds"`
}

// text returns the number of calls: in the window, if there is one, and since the start.
func (c counts) text(key string, w *window) string {
	all, ok := c[key]
	switch {
	case !ok:
		return "none since the server started"
	case w.Before == nil || w.Seconds < 1:
		return all.text(key) + " since the server started"
	}
	length := time.Duration(min(w.Seconds, 24*3600) * float64(time.Second)).Round(time.Second)
	switch recent, ok := all.since(w.Before[key]); {
	case !ok:
		return all.text(key) + " since the server started again"
	case recent.Calls == 0:
		return fmt.Sprintf("none in the last %s, %.0f since the server started", length, all.Calls)
	default:
		return fmt.Sprintf("%s in the last %s, %.0f since the server started", recent.text(key), length, all.Calls)
	}
}

// metrics are the families that views show, by name.
type metrics map[string]*dto.MetricFamily

// readMetrics reads the metrics of the server. Metrics that cannot be parsed are treated as absent.
func (v *viewer) readMetrics() (metrics, error) {
	lines := &wantedLines{kept: budgeted{viewer: v}}
	if err := v.send(http.MethodGet, "/metrics", nil, lines); err != nil {
		return nil, err
	}
	return parseMetrics(&lines.kept), nil
}

func parseMetrics(text io.Reader) metrics {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil || families == nil {
		return metrics{}
	}
	return families
}

// wantedLines keeps the lines of the families that views show; a server has many others.
type wantedLines struct {
	rest []byte
	kept budgeted
}

var wantedFamilies = [][]byte{[]byte(callsFamily), []byte(evaluationsFamily), []byte(sizeFamily), []byte(freeFamily)}

// maxLine bounds a line, in bytes.
const maxLine = 1 << 20

func (l *wantedLines) Write(b []byte) (int, error) {
	text := append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(text, []byte("\n"))
		if !ok {
			break
		}
		if slices.ContainsFunc(wantedFamilies, func(family []byte) bool { return bytes.Contains(line, family) }) {
			if _, err := l.kept.Write(text[:len(line)+1]); err != nil {
				return 0, err
			}
		}
		text = rest
	}
	if len(text) > maxLine {
		return 0, &refused{http.StatusBadGateway, "the metrics of the server cannot be read: a line is too long"}
	}
	l.rest = append(l.rest[:0], text...)
	return len(b), nil
}

// counts returns the counts of calls and evaluations.
func (families metrics) counts() counts {
	all := counts{}
	for _, m := range families[callsFamily].GetMetric() {
		labels := labelsOf(m)
		key := labels["type"] + "/" + labels["name"]
		s := all[key]
		n := float64(m.GetHistogram().GetSampleCount())
		s.Calls += n
		if labels["rejected"] == "true" {
			s.Rejected += n
		}
		for _, b := range m.GetHistogram().GetBucket() {
			// JSON has no infinity, and the last bucket counts all calls.
			if at := b.GetUpperBound(); !math.IsInf(at, 0) && !math.IsNaN(at) {
				if s.Buckets == nil {
					s.Buckets = map[bound]float64{}
				}
				s.Buckets[bound(at)] += float64(b.GetCumulativeCount())
			}
		}
		all[key] = s
	}
	for _, m := range families[evaluationsFamily].GetMetric() {
		n := m.GetCounter().GetValue()
		if math.IsInf(n, 0) || math.IsNaN(n) {
			continue
		}
		labels := labelsOf(m)
		key := policyPrefix + labels["type"] + "/" + labels["policy"]
		s := all[key]
		s.Calls += n
		if labels["outcome"] == "violated" {
			s.Rejected += n
		}
		all[key] = s
	}
	return all
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := make(map[string]string, len(m.Label))
	for _, l := range m.Label {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// storage describes the size of the etcd databases, and the free disk space.
func (families metrics) storage() []string {
	var list []string
	// Without a TYPE line, a family is untyped.
	value := func(m *dto.Metric) float64 { return (m.GetGauge().GetValue() + m.GetUntyped().GetValue()) / (1 << 20) }
	for _, m := range families[sizeFamily].GetMetric() {
		list = append(list, fmt.Sprintf("The database of %s has %.1f MiB.", cmp.Or(labelsOf(m)["storage_cluster_id"], "etcd"), value(m)))
	}
	for _, m := range families[freeFamily].GetMetric() {
		list = append(list, fmt.Sprintf("The disk of the embedded etcd has %.0f MiB free.", value(m)))
	}
	return list
}

// viewCalls returns the calls of webhooks and policies, by the keys in the drawing of a chain.
func viewCalls(v *viewer, asked []byte) (any, error) {
	w := &window{}
	if err := decode(asked, w); err != nil {
		return nil, err
	}
	families, err := v.readMetrics()
	if err != nil {
		return nil, err
	}
	c := families.counts()
	texts := make(map[string]string, len(c))
	for key := range c {
		texts[key] = c.text(key, w)
	}
	return map[string]any{"texts": texts, "counts": c}, nil
}
