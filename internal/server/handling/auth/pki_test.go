package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// put stores a certificate that is valid for a time, signed by ca or by itself.
func put(t *testing.T, dir, name string, from, to time.Time, ca *pair) *pair {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		BasicConstraintsValid: true, IsCA: ca == nil, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	p, err := createAt(template, ca)
	if err != nil {
		t.Fatal(err)
	}
	if err := store(Files{}, filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestClocks(t *testing.T) {
	now := time.Now()
	day := 24 * time.Hour
	for _, c := range []struct {
		name             string
		caFrom, caTo     time.Time
		leafFrom, leafTo time.Time
		err              string
		kept             bool
	}{
		{name: "all is well", caFrom: now.Add(-day), caTo: now.Add(1000 * day), leafFrom: now.Add(-day), leafTo: now.Add(100 * day), kept: true},
		{name: "the admin's certificate ends soon", caFrom: now.Add(-day), caTo: now.Add(1000 * day), leafFrom: now.Add(-day), leafTo: now.Add(day)},
		{name: "it was made while the clock was ahead", caFrom: now.Add(-day), caTo: now.Add(1000 * day), leafFrom: now.Add(day), leafTo: now.Add(100 * day)},
		{name: "the authority was made while the clock was ahead", caFrom: now.Add(day), caTo: now.Add(1000 * day), leafFrom: now, leafTo: now.Add(100 * day), err: "set the clock"},
		{name: "the authority is too old", caFrom: now.Add(-10 * day), caTo: now.Add(-day), leafFrom: now, leafTo: now.Add(100 * day), err: "set the clock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			ca := put(t, dir, "ca", c.caFrom, c.caTo, nil)
			admin := put(t, dir, "admin", c.leafFrom, c.leafTo, ca)
			p, err := LoadPKI(t.Context(), Files{}, dir, []string{"localhost"}, nil)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), dir) {
					t.Fatalf("error %v, want one with %q and the directory", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if kept := string(p.AdminCert) == string(admin.certPEM); kept != c.kept {
				t.Errorf("kept the admin's certificate: %v, want %v", kept, c.kept)
			}
		})
	}
}

func TestDirectoryThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadPKI(t.Context(), Files{}, filepath.Join(file, "pki"), nil, nil); err == nil {
		t.Error("no error")
	}
}

// changing is a source of CAs.
type changing struct{ listener dynamiccertificates.Listener }

func (c *changing) AddListener(l dynamiccertificates.Listener) { c.listener = l }

// A certificate whose CA is no longer trusted is rejected at once. Every certificate is verified
// again after a while.
func TestVerifiedCertificatesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := newCA(ownCA)
		if err != nil {
			t.Fatal(err)
		}
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
