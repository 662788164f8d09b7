package keys

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

func newShared(t *testing.T) *Shared {
	t.Helper()
	client := etcdtest.Start(t)
	return &Shared{Etcd: client.KV, Prefix: "/test/pki", Values: identity.NewEncryptCheckTransformer()}
}

// Servers that start at the same time agree on one CA and one token key, and each accepts the
// administrator's certificates of all.
func TestServersThatStartTogetherShareOneAuthority(t *testing.T) {
	shared := newShared(t)
	dir := t.TempDir()
	const servers = 8
	var all [servers]*PKI
	var starting sync.WaitGroup
	for i := range servers {
		starting.Go(func() {
			var err error
			if all[i], err = LoadPKI(t.Context(), Files{}, filepath.Join(dir, strconv.Itoa(i)), []string{"localhost"}, shared); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(all[0].CA)
	for i, p := range all {
		if string(p.CA) != string(all[0].CA) {
			t.Errorf("server %d has an authority of its own", i)
		}
		if !all[0].TokenKey.Public().(*ecdsa.PublicKey).Equal(p.TokenKey.Public()) {
			t.Errorf("server %d has a token key of its own", i)
		}
		block, _ := pem.Decode(p.AdminCert)
		admin, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("server 0 does not believe the administrator of server %d: %v", i, err)
		}
	}
	// The next start finds the same.
	again, err := LoadPKI(t.Context(), Files{}, filepath.Join(dir, "0"), []string{"localhost"}, shared)
	if err != nil || string(again.AdminCert) != string(all[0].AdminCert) {
		t.Errorf("after a restart: another certificate, or %v", err)
	}
}

// A server that had a CA before it shared one gives it to the others. A server that joins later
// adopts the shared CA, and makes its own certificates again.
func TestSharingBeginsWithWhatThereIs(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	load := func(dir string, shared *Shared) *PKI {
		t.Helper()
		p, err := LoadPKI(t.Context(), Files{}, dir, nil, shared)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	alone, other := load(first, nil), load(second, nil)
	shared := newShared(t)
	if p := load(first, shared); string(p.CA) != string(alone.CA) || string(p.AdminCert) != string(alone.AdminCert) {
		t.Error("the first server does not keep what it had")
	}
	p := load(second, shared)
	if string(p.CA) != string(alone.CA) || string(p.AdminCert) == string(other.AdminCert) {
		t.Error("the second server keeps what it had")
	}
	if p := load(second, nil); string(p.CA) != string(alone.CA) {
		t.Error("the second server's directory has no copy")
	}
}

func TestWhatIsSharedMustBeAPair(t *testing.T) {
	shared := newShared(t)
	if _, err := shared.Etcd.Put(t.Context(), "/test/pki/ca", "garbage"); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadPKI(t.Context(), Files{}, t.TempDir(), nil, shared); !errors.Is(err, errSharedPair) {
		t.Errorf("got %v", err)
	}
}
