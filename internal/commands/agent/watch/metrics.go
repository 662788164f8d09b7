package watch

import (
	"cmp"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
)

// The metrics of a Watcher.
var (
	findings = gauge("findings", "Findings of the latest run, by source (lint or audit), by the rule of lint or the policy, and by level (error, warning or note).", "source", "rule", "level")
	expires  = gauge("certificate_expiration_timestamp_seconds", "When the certificates of webhooks expire: of their caBundle, or the served certificate (use caBundle or served), by the configuration or definition and the webhook.", "kind", "configuration", "webhook", "use")
	lastRun  = gauge("last_run_timestamp_seconds", "When lint or an audit last ran to its end, by source.", "source")
	objects  = gauge("audited_objects", "Objects of the latest audit, by result: judged, or left_out if they could not be evaluated.", "result")
	// reportKind is 1 for the report kind that is written.
	reportKind = gauge("reports", "Whether the agent writes reports of an API version: 1 for the version that it writes, 0 if the cluster lacks it or has a preferred one.", "api_version")
	failures   = metric.Counter("agent_run_failures_total",
		"Runs of lint or of an audit that failed, or whose reports could not be written, by source.", "source")

	once sync.Once
)

func gauge(name, help string, labels ...string) *metrics.GaugeVec {
	return metric.Gauge("agent_"+name, help, labels...)
}

// registerMetrics registers the metrics of the process, once.
func registerMetrics() {
	once.Do(func() { legacyregistry.MustRegister(findings, expires, lastRun, objects, reportKind, failures) })
}

// resetMetrics removes all series of the findings.
func resetMetrics() {
	for _, one := range []*metrics.GaugeVec{findings, expires, lastRun, objects, reportKind} {
		one.Reset()
	}
}

// maxSeries bounds the series of a metric whose labels name objects of the cluster.
const maxSeries = 1000

// setFindings replaces the findings of a source.
func setFindings(of source, found []finding) {
	findings.DeletePartialMatch(map[string]string{"source": string(of)})
	rules := map[string]bool{}
	for i := range found {
		rule := found[i].rule
		if !rules[rule] && len(rules) >= maxSeries {
			rule = "(others)"
		}
		rules[rule] = true
		findings.WithLabelValues(string(of), rule, string(found[i].level)).Inc()
	}
}

// setExpiries replaces the expiry times of certificates.
func setExpiries(list []lint.Expiry) {
	expires.Reset()
	for _, e := range list[:min(len(list), maxSeries)] {
		expires.WithLabelValues(e.Object.Kind, e.Object.Name, cmp.Or(e.Webhook, "(conversion)"), e.Use).Set(float64(e.Until.Unix()))
	}
}
