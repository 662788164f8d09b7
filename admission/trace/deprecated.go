package trace

import (
	"context"
	"sync"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/component-base/metrics"

	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

// The deprecated properties of a webhook's serving certificate.
const (
	// MissingSAN: the certificate has no subjectAltName.
	MissingSAN = "MissingSAN"
	// InsecureSHA1: the certificate has a signature that uses SHA-1.
	InsecureSHA1 = "InsecureSHA1"
)

// deprecation is the report about a deprecated property (SEMANTICS 10).
type deprecation struct {
	counter func() *metrics.Counter
	// annotation is the prefix of the audit annotation's key, which is followed by the host of the
	// webhook. reason is the value.
	annotation, reason string
}

var deprecations = map[string]deprecation{
	MissingSAN: {
		counter: deprecatedCounter("x509_missing_san_total", "Counts the number of requests to servers missing SAN extension "+
			"in their serving certificate OR the number of connection failures "+
			"due to the lack of x509 certificate SAN extension missing "+
			"(either/or, based on the runtime environment)"),
		annotation: "missing-san.invalid-cert.kubernetes.io/",
		reason:     "the serving certificate has no subjectAltName, and clients ignore its common name",
	},
	InsecureSHA1: {
		counter: deprecatedCounter("x509_insecure_sha1_total", "Counts the number of requests to servers with insecure SHA1 signatures "+
			"in their serving certificate OR the number of connection failures "+
			"due to the insecure SHA1 signatures (either/or, based on the runtime environment)"),
		annotation: "insecure-sha1.invalid-cert.kubernetes.io/",
		reason:     "the serving certificate has a signature that uses SHA-1",
	},
}

// CountDeprecations counts the deprecated properties of the certificate of a webhook's host and
// adds them to the audit event of ctx. names are MissingSAN or InsecureSHA1.
func CountDeprecations(ctx context.Context, host string, names []string) {
	for _, name := range names {
		d := deprecations[name]
		d.counter().Inc()
		audit.AddAuditAnnotation(ctx, d.annotation+host, d.reason)
	}
}

func noteDeprecations(ctx context.Context, c *Call) {
	if len(c.Deprecated) > 0 {
		CountDeprecations(ctx, c.Host, c.Deprecated)
	}
}

// deprecatedCounter returns a function that registers a counter when it is first called. By then
// every package is initialized. The webhook package of k8s.io/apiserver, if linked in, registers
// the same counters, and panics unless it registers them first.
func deprecatedCounter(name, help string) func() *metrics.Counter {
	return sync.OnceValue(func() *metrics.Counter {
		return metric.Registered(metrics.NewCounter(&metrics.CounterOpts{
			Namespace: "apiserver", Subsystem: "webhooks", Name: name, Help: help, StabilityLevel: metrics.BETA,
		}))
	})
}

// Register registers metrics, so that they are served before their first count.
func Register() {
	discarded()
	validatingMetrics()
	mutatingMetrics()
	evaluations()
	for _, d := range deprecations {
		d.counter()
	}
}
