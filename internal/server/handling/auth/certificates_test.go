package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
)

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pem(t *testing.T) []byte {
	t.Helper()
	data, err := certutil.EncodeCertificates(a.cert)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// client returns a certificate of a client.
func (a *authority) client(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	data, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(data)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// changing is a source of CAs.
type changing struct{ listener dynamiccertificates.Listener }

func (c *changing) AddListener(l dynamiccertificates.Listener) { c.listener = l }

// A certificate whose CA is no longer trusted is rejected at once. Every certificate is verified
// again after a while.
func TestVerifiedCertificatesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t, "clients")
		believed, asked, during := true, 0, func() {}
		authorities := &changing{}
		a := rememberVerified(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			asked++
			answer := believed
			during()
			return &authenticator.Response{User: &user.DefaultInfo{Name: "u"}}, answer, nil
		}), authorities)
		authenticate := func(want bool, times int) {
			t.Helper()
			asked = 0
			req := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{ca.cert}}}
			if _, ok, err := a.AuthenticateRequest(req); ok != want || err != nil {
				t.Errorf("authenticated: %v, %v; want %v", ok, err, want)
			}
			if asked != times {
				t.Errorf("verified %d times, want %d", asked, times)
			}
		}
		authenticate(true, 1)
		authenticate(true, 0)
		believed = false
		time.Sleep(verifiedFor - time.Nanosecond)
		authenticate(true, 0)
		time.Sleep(time.Nanosecond)
		authenticate(false, 1)
		authenticate(false, 1)

		believed = true
		authenticate(true, 1)
		believed = false
		authorities.listener.Enqueue()
		authenticate(false, 1)
		// The CAs change while a certificate is verified by those before.
		believed, during = true, func() {
			believed, during = false, func() {}
			authorities.listener.Enqueue()
		}
		authenticate(true, 1)
		authenticate(false, 1)
	})
}
