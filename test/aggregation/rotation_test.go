package aggregation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// published returns the ConfigMap with the certificate authorities for aggregated servers, and the number of
// its front-proxy authorities.
func published(t *testing.T, h *harness.HTTP) (data map[string]string, authorities int) {
	t.Helper()
	var cm struct{ Data map[string]string }
	if err := json.Unmarshal(h.Get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication").Raw, &cm); err != nil {
		t.Fatal(err)
	}
	for rest := []byte(cm.Data["requestheader-client-ca-file"]); ; authorities++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return cm.Data, authorities
		}
	}
}

// Servers on one etcd share one front-proxy certificate authority. The ConfigMap contains it once, whichever
// server starts or stops, and the aggregated server trusts all servers (S22.18, S22.19).
func TestServersShareTheFrontProxyAuthority(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	etcd, port := harness.StartEtcd(t), harness.FreePort(t)
	start := func() *harness.Server {
		return harness.Start(t, "--etcd-servers", etcd.URL, "--service-address", "wardle/api=127.0.0.1:"+port)
	}
	one, two := start(), start()
	var authority string
	for i, server := range []*harness.Server{one, two} {
		keys, err := filepath.Glob(filepath.Join(server.DataDir, "pki", "*.key"))
		if err != nil || len(keys) < 5 {
			t.Fatalf("keys: %v, %v", keys, err)
		}
		for _, key := range keys {
			if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("S22.19 %s: %v, %v", key, info.Mode(), err)
			}
		}
		bundle, err := os.ReadFile(filepath.Join(server.DataDir, "pki", "front-proxy-ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && string(bundle) != authority {
			t.Error("S22.19: the servers have different authorities")
		}
		authority = string(bundle)
	}
	admin, other := one.HTTP(t, nil), two.HTTP(t, nil)
	before, n := published(t, admin)
	if n != 1 || strings.TrimSpace(before["requestheader-client-ca-file"]) != strings.TrimSpace(authority) || before["requestheader-allowed-names"] != `["front-proxy-client"]` {
		t.Errorf("S22.18 published, %d authorities: %v", n, before)
	}
	s, kubectl := newSample(t, one, port), one.Kubectl(t, "wardle")
	s.register(t, kubectl)
	s.start(t)
	available(t, admin, "v1alpha1.wardle.example.com", "True")
	for i, h := range []*harness.HTTP{admin, other} {
		name := fmt.Sprintf("through-%d", i)
		harness.Eventually(t, "the server knows the APIService", func() error {
			if code, err := h.Try(t.Context(), "POST", flunders, flunder(name)); code != http.StatusCreated {
				return fmt.Errorf("%d, %v", code, err)
			}
			return nil
		})
	}
	one.Stop(t)
	other.Must(http.StatusOK, "GET", flunders+"/through-0", "")
	one.Restart(t)
	admin = one.HTTP(t, nil)
	for _, h := range []*harness.HTTP{admin, other} {
		h.Must(http.StatusOK, "GET", flunders+"/through-1", "")
	}
	if after, n := published(t, admin); n != 1 || after["requestheader-client-ca-file"] != before["requestheader-client-ca-file"] {
		t.Errorf("S22.18 after a restart, %d authorities: %v", n, after)
	}
}

// The front-proxy certificate and its certificate authority are replaced as described in the operations
// pages, and no request fails. Both authorities are trusted in between, and only the new one in the end
// (S22.18, S22.19).
func TestRotateTheFrontProxyCertificate(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	const section = "Certificates"
	a, port := harness.NewAdministrator(t), harness.FreePort(t)
	old, next := harness.NewAuthority(t, "old"), harness.NewAuthority(t, "new")
	oldCert, oldKey := old.Pair(t, "front")
	newCert, newKey := next.Pair(t, "front")
	for name, content := range map[string][]byte{
		"old-front-ca.crt": old.Bundle, "new-front-ca.crt": next.Bundle, "front-ca.crt": old.Bundle,
		"front.crt": oldCert, "front.key": oldKey, "new-front.crt": newCert, "new-front.key": newKey,
	} {
		a.Write(t, name, content)
	}
	file := func(name string) string { return filepath.Join(a.Dir, name) }
	main := harness.Start(t, "--service-address", "wardle/api=127.0.0.1:"+port, "--requestheader-client-ca-file", file("front-ca.crt"),
		"--requestheader-allowed-names", "front", "--proxy-client-cert-file", file("front.crt"), "--proxy-client-key-file", file("front.key"))
	a.Of(main)
	admin, kubectl := main.HTTP(t, nil), main.Kubectl(t, "wardle")
	s := newSample(t, main, port)
	s.register(t, kubectl)
	s.start(t)
	available(t, admin, "v1alpha1.wardle.example.com", "True")

	// direct sends a request directly to the aggregated server, as a front proxy with the given certificate.
	direct := func(cert, key []byte) error {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(s.bundle)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: []tls.Certificate{pair}}}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), "GET", "https://127.0.0.1:"+port+flunders, nil)
		if err != nil {
			return err
		}
		req.Header.Set("X-Remote-User", "admin")
		req.Header.Set("X-Remote-Group", "system:masters")
		res, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	}
	if err := direct(oldCert, oldKey); err != nil {
		t.Errorf("with the first certificate: %v", err)
	}
	if direct(newCert, newKey) == nil {
		t.Error("the new certificate counts too early")
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asked atomic.Int64
	asking := make(chan struct{})
	go func() {
		defer close(asking)
		for ctx.Err() == nil {
			if code, err := admin.Try(t.Context(), "POST", flunders+"?dryRun=All", flunder("again")); code != http.StatusCreated {
				t.Errorf("request %d: %d, %v", asked.Load(), code, err)
			}
			asked.Add(1)
			harness.Breathe(ctx)
		}
	}()
	a.Follow(t, section, "cat old-front-ca.crt")
	harness.Eventually(t, "the aggregated server trusts both", func() error {
		return errors.Join(direct(oldCert, oldKey), direct(newCert, newKey))
	})
	a.Follow(t, section, "mv new-front.crt")
	a.Follow(t, section, "cp new-front-ca.crt")
	harness.Eventually(t, "the aggregated server trusts the new one alone", func() error {
		if direct(oldCert, oldKey) == nil {
			return errors.New("the old certificate counts")
		}
		return direct(newCert, newKey)
	})
	since := asked.Load()
	harness.Eventually(t, "requests with the new certificate", func() error {
		if n := asked.Load() - since; n < 10 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	stop()
	<-asking
	if data, n := published(t, admin); n != 1 || strings.TrimSpace(data["requestheader-client-ca-file"]) != strings.TrimSpace(string(next.Bundle)) {
		t.Errorf("published, %d authorities: %v", n, data)
	}
}
