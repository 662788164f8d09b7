package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// Authority is a certificate authority of a test.
type Authority struct {
	// Bundle is the authority's certificate in PEM.
	Bundle []byte

	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial atomic.Int64
}

// NewAuthority creates a self-signed certificate authority.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{Bundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert: cert, key: key}
}

// Pair returns a certificate for DNS names and IP addresses, and its key, both in PEM. The first name is also
// the common name, the user of a client certificate.
func (a *Authority) Pair(t testing.TB, names ...string) (cert, key []byte) {
	t.Helper()
	return a.pair(t, a.cert.NotAfter, names...)
}

func (a *Authority) pair(t testing.TB, end time.Time, names ...string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.serial.Add(1)), Subject: pkix.Name{CommonName: names[0]},
		NotBefore: a.cert.NotBefore, NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// Serving returns a Pair for a TLS server.
func (a *Authority) Serving(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.Pair(t, names...))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// ExpiredPair is like Pair, but the certificate expired a minute ago.
func (a *Authority) ExpiredPair(t testing.TB, names ...string) (cert, key []byte) {
	t.Helper()
	return a.pair(t, time.Now().Add(-time.Minute), names...)
}

// Expired is like Serving, but the certificate expired a minute ago.
func (a *Authority) Expired(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.ExpiredPair(t, names...))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// Pool returns a pool that contains only this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}
