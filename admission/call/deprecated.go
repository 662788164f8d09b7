package call

import (
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// Deprecated properties of serving certificates, with the names in package trace.
const (
	missingSAN   = "MissingSAN"
	insecureSHA1 = "InsecureSHA1"
)

// note records the deprecated properties of the certificate of a webhook server that answered, or
// that was not trusted (S10).
func (x *exchange) note(answer *http.Response, err error) {
	seen := x.facts
	switch {
	case err != nil && isCertificateError(err):
		if lacksNames(err) {
			seen.Deprecated = append(seen.Deprecated, missingSAN)
		}
		if signedWithSHA1(err) {
			seen.Deprecated = append(seen.Deprecated, insecureSHA1)
		}
	case err == nil && answer.TLS != nil && slices.ContainsFunc(answer.TLS.PeerCertificates, usesSHA1):
		seen.Deprecated = append(seen.Deprecated, insecureSHA1)
	}
	if len(seen.Deprecated) > 0 {
		seen.Host = x.url.Hostname()
	}
}

// subjectAltName is the extension with the names of a certificate.
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
	// Only the error's text contains the reason why a CA was not a candidate.
	_, algorithm, found := strings.Cut(unknown.Error(), "insecure algorithm ")
	return found && strings.Contains(algorithm, "SHA1")
}

// usesSHA1 reports whether a certificate is signed with SHA-1. It ignores roots, because
// verification ignores their signatures.
func usesSHA1(c *x509.Certificate) bool {
	switch c.SignatureAlgorithm {
	case x509.SHA1WithRSA, x509.ECDSAWithSHA1:
		return string(c.RawIssuer) != string(c.RawSubject)
	}
	return false
}
