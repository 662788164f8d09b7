package keys

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// rotating is a server whose keys are replaced.
type rotating struct {
	t      *testing.T
	dir    string
	shared *Shared
	peers  *Peers
	pki    *PKI
}

// apply makes the server apply the current phase.
func (r *rotating) apply() {
	r.t.Helper()
	var err error
	if r.pki, err = LoadPKI(r.t.Context(), Files{NoSync: true}, r.dir, []string{"localhost"}, r.shared); err != nil {
		r.t.Fatal(err)
	}
	if err = r.peers.Share(r.t.Context(), r.shared, r.pki.Rotation); err == nil {
		err = r.peers.Prepare("10.0.0.1")
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// verified reports whether the certificate of a file is valid for a client or server that trusts some
// CAs.
func (r *rotating) verified(certFile, keyFile string, trusted []byte, usage x509.ExtKeyUsage) bool {
	r.t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		r.t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			r.t.Fatal(err)
		}
		between.AddCert(c)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err == nil
}

func (r *rotating) read(file string) []byte {
	r.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// trusts fails the test unless a server accepts the certificates of another one.
func (r *rotating) trusts(other *rotating) {
	r.t.Helper()
	at := func(name string) (cert, key string) { return pairFiles(other.dir, name) }
	for name, trusted := range map[string][]byte{"admin": r.pki.CA, FrontProxyName: r.read(r.pki.FrontProxyCAFile), "peer": r.read(r.peers.CAFile)} {
		if cert, key := at(name); !r.verified(cert, key, trusted, x509.ExtKeyUsageClientAuth) {
			r.t.Errorf("in %q: %s of a server in %q is refused", r.pki.Rotation.State(), name, other.pki.Rotation.State())
		}
	}
	for name, trusted := range map[string][]byte{"server": r.pki.CA, "peer": r.read(r.peers.CAFile)} {
		if cert, key := at(name); !r.verified(cert, key, trusted, x509.ExtKeyUsageServerAuth) {
			r.t.Errorf("in %q: %s of a server in %q is refused", r.pki.Rotation.State(), name, other.pki.Rotation.State())
		}
	}
	if !r.verifies(other.pki.TokenKey.Public().(*ecdsa.PublicKey)) {
		r.t.Errorf("in %q: tokens of a server in %q are refused", r.pki.Rotation.State(), other.pki.Rotation.State())
	}
}

func (r *rotating) verifies(key *ecdsa.PublicKey) bool {
	return slices.ContainsFunc(r.pki.TokenKeys, func(k any) bool { return key.Equal(k) })
}

// S31.17: servers in neighbouring phases of a rotation accept each other, and clients with old credentials are
// accepted until the trust ends. A server that joins or starts in any phase gets the keys of the phase.
func TestKeysAreReplacedInPhases(t *testing.T) {
	for name, endTokens := range map[string]bool{"tokens stay": false, "tokens end": true} {
		t.Run(name, func(t *testing.T) {
			shared := newShared(t)
			shared.RotationKey = "/test/rotation"
			newServer := func() *rotating {
				dir := t.TempDir()
				return &rotating{t: t, dir: dir, shared: shared, peers: NewPeers(Files{NoSync: true}, dir)}
			}
			a, b := newServer(), newServer()
			if err := a.peers.Prepare("10.0.0.1"); err != nil {
				t.Fatal(err)
			}
			a.apply()
			b.apply()
			oldCA, oldPeers, oldTokens := a.pki.CA, a.read(a.peers.CAFile), a.pki.TokenKey.Public().(*ecdsa.PublicKey)
			old := t.TempDir()
			for _, file := range []string{"admin.crt", "admin.key"} {
				if err := os.WriteFile(filepath.Join(old, file), a.read(filepath.Join(a.dir, file)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			oldAdmin := func(by *rotating) bool {
				cert, key := pairFiles(old, "admin")
				return by.verified(cert, key, by.pki.CA, x509.ExtKeyUsageClientAuth)
			}
			oldClient := func(of *rotating) bool {
				cert, key := pairFiles(of.dir, "server")
				return of.verified(cert, key, oldCA, x509.ExtKeyUsageServerAuth)
			}
			now := &Rotation{ID: "x", EndTokens: endTokens}
			for _, phase := range []Phase{PhaseTrust, PhaseUse, PhaseForget, PhaseStore} {
				now.Phase = phase
				if err := now.Set(t.Context(), shared.Etcd, shared.RotationKey); err != nil {
					t.Fatal(err)
				}
				for _, first := range []*rotating{a, b} {
					first.apply()
					// The phase may be applied again: the server was killed.
					first.apply()
					a.trusts(b)
					b.trusts(a)
				}
				between := phase == PhaseTrust || phase == PhaseUse
				for _, s := range []*rotating{a, b} {
					if oldAdmin(s) != between || oldClient(s) != between || s.verifies(oldTokens) != (between || !endTokens) {
						t.Errorf("%s: the old administrator %t, old clients %t, old tokens %t", phase, oldAdmin(s), oldClient(s), s.verifies(oldTokens))
					}
					// etcd trusts the CAs from its start.
					cert, key := pairFiles(s.dir, "peer")
					if !s.verified(cert, key, oldPeers, x509.ExtKeyUsageServerAuth) {
						t.Errorf("%s: a member that has not started again refuses the others", phase)
					}
				}
				joins := newServer()
				request, err := joins.peers.Request()
				if err != nil {
					t.Fatal(err)
				}
				cert, trust, err := a.peers.Sign(request, "10.0.0.1")
				if err == nil {
					err = joins.peers.Accept(cert, trust)
				}
				if err != nil {
					t.Fatal(err)
				}
				joins.apply()
				joins.trusts(a)
				a.trusts(joins)
			}
			var storing sync.WaitGroup
			for range 3 {
				storing.Go(func() {
					if err := shared.Store(t.Context(), now); err != nil {
						t.Error(err)
					}
				})
			}
			storing.Wait()
			stored, err := ReadRotation(t.Context(), shared.Etcd, shared.RotationKey)
			if err != nil || stored == nil || stored.Phase != PhaseRestart {
				t.Fatal(stored, err)
			}
			inUse := a.pki.CA
			for _, end := range []bool{false, true} {
				if end {
					stored.Phase = ""
					if err := stored.Set(t.Context(), shared.Etcd, shared.RotationKey); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range []*rotating{a, b} {
					s.apply()
					if !bytes.Equal(s.pki.CA, inUse) || bytes.Equal(s.pki.CA, oldCA) || s.verifies(oldTokens) == endTokens {
						t.Errorf("%q: other keys than those in use", s.pki.Rotation.State())
					}
				}
				a.trusts(b)
			}
			if err := now.Set(t.Context(), shared.Etcd, shared.RotationKey); !errors.Is(err, ErrOtherRotation) {
				t.Errorf("a change of a rotation that has ended: %v", err)
			}
		})
	}
}

// A server reads keys again that were replaced while it read them, and reports a phase of a later release as
// an error.
func TestAPhaseOfALaterRelease(t *testing.T) {
	shared := newShared(t)
	shared.RotationKey = "/test/rotation"
	load := func(ctx context.Context) error {
		_, err := LoadPKI(ctx, Files{NoSync: true}, t.TempDir(), nil, shared)
		return err
	}
	for phase, want := range map[Phase]error{PhaseUse: errRotated, PhaseForget: errRotated, PhaseTrust: nil, PhaseRestart: nil} {
		if _, err := shared.Etcd.Put(t.Context(), shared.RotationKey, `{"id":"x","phase":"`+string(phase)+`"}`); err != nil {
			t.Fatal(err)
		}
		if _, err := shared.Etcd.Delete(t.Context(), "/test/pki/ca.next"); err != nil {
			t.Fatal(err)
		}
		if err := load(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v", phase, err)
		}
	}
	// The keys exist, and the phase is unknown.
	for _, phase := range []string{"trust", "later"} {
		if _, err := shared.Etcd.Put(t.Context(), shared.RotationKey, `{"id":"x","phase":"`+phase+`"}`); err != nil {
			t.Fatal(err)
		}
		if err := load(t.Context()); (err != nil) != (phase == "later") || errors.Is(err, errRotated) {
			t.Errorf("%s: %v", phase, err)
		}
	}
}

// S31.18: CAs that aggregated servers no longer trust are recognized by their names. Other CAs
// stay.
func TestAuthoritiesOfACluster(t *testing.T) {
	authority := func(name string) string {
		t.Helper()
		p, err := newCA(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(p.certPEM)
	}
	old, older, now, given := authority("gatehouse-ca"), authority("front-proxy-ca-1"), authority("gatehouse-ca-2"), authority("corporate")
	got, err := Without(old+given+older+now, now)
	if err != nil || got != given+now {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := Without("", now); err == nil {
		t.Error("no certificates, and no error")
	}
}
