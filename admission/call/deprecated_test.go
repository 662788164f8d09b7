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
)

// certificate signs a serving certificate from a template.
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

func TestDeprecatedCertificatesAreNoticed(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	subject := pkix.Name{CommonName: "localhost"}
	old := ca.certificate(t, &x509.Certificate{Subject: subject, DNSNames: []string{"old"}, SignatureAlgorithm: x509.ECDSAWithSHA1})
	chain := ca.serving(t, "localhost")
	chain.Certificate = append(chain.Certificate, old.Certificate[0])
	for _, c := range []struct {
		name string
		cert tls.Certificate
		want Facts
	}{
		{"S10 a good certificate", ca.serving(t, "localhost"), Facts{Sent: true}},
		{"S10 no subjectAltName", ca.certificate(t, &x509.Certificate{Subject: subject}), Facts{Host: "localhost", Deprecated: []string{"MissingSAN"}}},
		{"S10 the wrong subjectAltName", ca.serving(t, "elsewhere"), Facts{}},
		{"S10 an unknown authority", other.serving(t, "localhost"), Facts{}},
		{
			"S10 signed with SHA-1", ca.certificate(t, &x509.Certificate{Subject: subject, DNSNames: []string{"localhost"}, SignatureAlgorithm: x509.ECDSAWithSHA1}),
			Facts{Host: "localhost", Deprecated: []string{"InsecureSHA1"}},
		},
		{"S10 SHA-1 elsewhere in a chain that is trusted", chain, Facts{Sent: true, Host: "localhost", Deprecated: []string{"InsecureSHA1"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			caller := newCaller(t, Options{})
			s := serve(t, c.cert, http.HandlerFunc(allow), nil)
			port := strconv.Itoa(s.Listener.Addr().(*net.TCPAddr).Port)
			inv := invocation(urlHook("https://localhost:"+port, ca.bundle))
			caller.Call(t.Context(), inv)
			if diff := cmp.Diff(c.want, inv.Facts); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
		})
	}
}
