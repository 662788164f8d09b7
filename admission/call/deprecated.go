package call

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// deprecation is something about serving certificates that older servers put up
// with.
type deprecation struct {
	counter func() *metrics.Counter
	// annotation is the prefix of the key of the audit annotation, to which the
	// host of the webhook is added, and reason its value.
	annotation, reason string
	// is tells it from how a call failed, and presented from the certificates of
	// a server that was trusted; nil for what is never trusted.
	is        func(error) bool
	presented func([]*x509.Certificate) bool
}

var deprecations = []deprecation{
	{
		counter: deprecatedCounter("x509_missing_san_total", "Counts the number of requests to servers missing SAN extension "+
			"in their serving certificate OR the number of connection failures "+
			"due to the lack of x509 certificate SAN extension missing "+
			"(either/or, based on the runtime environment)"),
		annotation: "missing-san.invalid-cert.kubernetes.io/",
		reason:     "the serving certificate has no subjectAltName, and its common name does not count",
		is:         lacksNames,
	},
	{
		counter: deprecatedCounter("x509_insecure_sha1_total", "Counts the number of requests to servers with insecure SHA1 signatures "+
			"in their serving certificate OR the number of connection failures "+
			"due to the insecure SHA1 signatures (either/or, based on the runtime environment)"),
		annotation: "insecure-sha1.invalid-cert.kubernetes.io/",
		reason:     "the serving certificate has a signature that uses SHA-1",
		is:         signedWithSHA1,
		presented:  func(chain []*x509.Certificate) bool { return slices.ContainsFunc(chain, usesSHA1) },
	},
}

// note counts what is deprecated about the certificate of a webhook server that
// answered, or that was not trusted (S10).
func (x *exchange) note(request *http.Request, answer *http.Response, err error) {
	switch {
	case err != nil && !isCertificateError(err), err == nil && answer.TLS == nil:
		return
	}
	for i := range deprecations {
		d := &deprecations[i]
		if err != nil && d.is(err) || err == nil && d.presented != nil && d.presented(answer.TLS.PeerCertificates) {
			d.counter().Inc()
			audit.AddAuditAnnotation(request.Context(), d.annotation+x.url.Hostname(), d.reason)
		}
	}
}

// subjectAltName is the extension that has the names of a certificate.
var subjectAltName = []int{2, 5, 29, 17}

func lacksNames(err error) bool {
	var wrong x509.HostnameError
	if !errors.As(err, &wrong) || wrong.Certificate == nil {
		return false
	}
	for _, e := range wrong.Certificate.Extensions {
		if e.Id.Equal(subjectAltName) {
			return false
		}
	}
	return true
}

func signedWithSHA1(err error) bool {
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		return false
	}
	// What made an authority no candidate is told in the text only.
	_, algorithm, found := strings.Cut(unknown.Error(), "insecure algorithm ")
	return found && strings.Contains(algorithm, "SHA1")
}

// usesSHA1 leaves out roots, whose signature nobody looks at.
func usesSHA1(c *x509.Certificate) bool {
	switch c.SignatureAlgorithm {
	case x509.SHA1WithRSA, x509.ECDSAWithSHA1:
		return string(c.RawIssuer) != string(c.RawSubject)
	}
	return false
}

// deprecatedCounter returns a counter of that name that is registered when it is first
// counted, when every package is initialized: upstream's package for webhooks,
// where it is linked in, has registered the same ones by then, and insists on
// being the first.
func deprecatedCounter(name, help string) func() *metrics.Counter {
	return sync.OnceValue(func() *metrics.Counter {
		c := metrics.NewCounter(&metrics.CounterOpts{
			Namespace: "apiserver", Subsystem: "webhooks", Name: name, Help: help, StabilityLevel: metrics.BETA,
		})
		err := legacyregistry.Register(c)
		var there prometheus.AlreadyRegisteredError
		if errors.As(err, &there) {
			if existing, ok := there.ExistingCollector.(*metrics.Counter); ok {
				return existing
			}
		}
		if err != nil {
			panic(fmt.Sprintf("call: metric %s: %v", name, err))
		}
		return c
	})
}

// registerCounters makes the counters show before they count.
func registerCounters() {
	for i := range deprecations {
		deprecations[i].counter()
	}
}
