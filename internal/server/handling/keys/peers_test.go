package keys

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func certificate(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// S31.2: a server that joins keeps its key, gets a certificate for its address, and renews it itself once it has the
// CA from etcd.
func TestPeersOfAServerThatJoins(t *testing.T) {
	first, joined := NewPeers(Files{}, t.TempDir()), NewPeers(Files{}, filepath.Join(t.TempDir(), "pki"))
	if err := first.Prepare("10.0.0.1"); err != nil {
		t.Fatal(err)
	}
	request, err := joined.Request()
	if err != nil {
		t.Fatal(err)
	}
	cert, trust, err := first.Sign(request, "second.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Accept(cert, trust); err == nil {
		t.Error("a certificate of another key is accepted")
	}
	if err := joined.Accept(cert, trust); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trust)
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := certificate(t, cert).Verify(x509.VerifyOptions{Roots: roots, DNSName: "second.example.com", KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
			t.Error(err)
		}
	}
	// Without the key of the CA, the certificate stays, whatever host it is for.
	if err := joined.Prepare("third.example.com"); err != nil {
		t.Fatal(err)
	}
	shared := newShared(t)
	for _, p := range []*Peers{first, joined} {
		if err := p.Share(t.Context(), shared, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := joined.Prepare("third.example.com"); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(joined.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := certificate(t, now).VerifyHostname("third.example.com"); err != nil {
		t.Error(err)
	}
	// A certificate that is valid for the host stays.
	if err := joined.Prepare("third.example.com"); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(joined.CertFile); err != nil || string(again) != string(now) {
		t.Errorf("the certificate was made anew: %v", err)
	}
	// A certificate that ends soon is made anew.
	ca, err := load(filepath.Join(joined.dir, peersCA+".crt"), filepath.Join(joined.dir, peersCA+".key"))
	if err != nil {
		t.Fatal(err)
	}
	old := put(t, t.TempDir(), "old", time.Now().Add(-time.Hour), time.Now().Add(renewBefore/2), ca)
	if err := errors.Join(os.WriteFile(joined.CertFile, old.certPEM, 0o600), os.WriteFile(joined.KeyFile, old.keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := joined.Prepare("third.example.com"); err != nil {
		t.Fatal(err)
	}
	if now, err = os.ReadFile(joined.CertFile); err != nil || time.Until(certificate(t, now).NotAfter) < renewBefore {
		t.Errorf("the certificate was not renewed: %v", err)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	p := NewPeers(Files{}, t.TempDir())
	good, err := p.Request()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	block.Bytes[len(block.Bytes)-1] ^= 1
	for name, request := range map[string][]byte{"none": nil, "a key": []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"), "not signed": pem.EncodeToMemory(block)} {
		if _, err := ReadRequest(request); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
