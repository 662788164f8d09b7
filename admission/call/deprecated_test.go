package call

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/component-base/metrics/legacyregistry"
)

// certificate signs a serving certificate as the template says.
func (a *authority) certificate(t *testing.T, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// counted returns the value of a counter as /metrics shows it.
func counted(t *testing.T, name string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

func TestDeprecatedCertificatesAreCounted(t *testing.T) {
	const names, sha1 = "apiserver_webhooks_x509_missing_san_total", "apiserver_webhooks_x509_insecure_sha1_total"
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	subject := pkix.Name{CommonName: "localhost"}
	old := ca.certificate(t, &x509.Certificate{Subject: subject, DNSNames: []string{"old"}, SignatureAlgorithm: x509.ECDSAWithSHA1})
	chain := ca.serving(t, "localhost")
	chain.Certificate = append(chain.Certificate, old.Certificate[0])
	for _, c := range []struct {
		name        string
		cert        tls.Certificate
		names, sha1 float64
		annotation  string
	}{
		{"S10 a good certificate", ca.serving(t, "localhost"), 0, 0, ""},
		{"S10 no subjectAltName", ca.certificate(t, &x509.Certificate{Subject: subject}), 1, 0, "missing-san.invalid-cert.kubernetes.io/localhost"},
		{"S10 the wrong subjectAltName", ca.serving(t, "elsewhere"), 0, 0, ""},
		{"S10 an unknown authority", other.serving(t, "localhost"), 0, 0, ""},
		{"S10 signed with SHA-1", ca.certificate(t, &x509.Certificate{Subject: subject, DNSNames: []string{"localhost"}, SignatureAlgorithm: x509.ECDSAWithSHA1}), 0, 1, "insecure-sha1.invalid-cert.kubernetes.io/localhost"},
		{"S10 SHA-1 elsewhere in a chain that is trusted", chain, 0, 1, "insecure-sha1.invalid-cert.kubernetes.io/localhost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			caller := newCaller(t, Options{})
			s := serve(t, c.cert, http.HandlerFunc(allow), nil)
			port := strconv.Itoa(s.Listener.Addr().(*net.TCPAddr).Port)
			beforeNames, beforeSHA1 := counted(t, names), counted(t, sha1)
			ctx := audit.WithAuditContext(t.Context())
			if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
				t.Fatal(err)
			}
			caller.Call(ctx, invocation(urlHook("https://localhost:"+port, ca.bundle)))
			if got := counted(t, names) - beforeNames; got != c.names {
				t.Errorf("%s grew by %v, want %v", names, got, c.names)
			}
			if got := counted(t, sha1) - beforeSHA1; got != c.sha1 {
				t.Errorf("%s grew by %v, want %v", sha1, got, c.sha1)
			}
			want := map[string]string{}
			for i := range deprecations {
				if d := &deprecations[i]; c.annotation == d.annotation+"localhost" {
					want[c.annotation] = d.reason
				}
			}
			got := audit.AuditContextFrom(ctx).GetEventAnnotations()
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("audit annotations (-want +got):\n%s", diff)
			}
		})
	}
}

// Upstream's package may have registered the same metric.
func TestCountersAreShared(t *testing.T) {
	const name = "x509_shared_total"
	first := deprecatedCounter(name, "help")
	second := deprecatedCounter(name, "help")
	if first() != second() {
		t.Error("two counters of one name")
	}
	before := counted(t, "apiserver_webhooks_"+name)
	first().Inc()
	second().Inc()
	if got := counted(t, "apiserver_webhooks_"+name) - before; got != 2 {
		t.Errorf("counted %v, want 2", got)
	}
}
