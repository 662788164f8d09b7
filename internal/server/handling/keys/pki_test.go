package keys

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// S22.19: the certificate for aggregated servers has a CA of its own. Only the owner of the key
// files may read them, and files that exist are kept.
func TestFrontProxyKeysStayAndAreTheOwners(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadPKI(t.Context(), Files{}, dir, []string{"localhost"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	read := func(file string) string {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	certificate, authority := read(first.FrontProxyCertFile), read(first.FrontProxyCAFile)
	if authority == string(first.CA) {
		t.Error("the authority is that of all clients")
	}
	for _, file := range []string{first.FrontProxyKeyFile, dir + "/front-proxy-ca.key"} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o", file, mode)
		}
	}
	second, err := LoadPKI(t.Context(), Files{}, dir, []string{"localhost"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if read(second.FrontProxyCertFile) != certificate || read(second.FrontProxyCAFile) != authority {
		t.Error("the certificate was made anew")
	}
}
