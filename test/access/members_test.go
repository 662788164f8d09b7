package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// S31.1, S31.2, S31.3: without a token or a member certificate, a client can neither reach the members of a
// cluster nor join them.
func TestNobodyGetsAmongTheMembers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peer := l.Addr().String()
	l.Close()
	s := harness.Start(t, "--cluster", "--peer-address", peer)
	at := func(name string) string { return filepath.Join(s.DataDir, "pki", name) }
	members, err := tls.LoadX509KeyPair(at("peer.crt"), at("peer.key"))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := tls.LoadX509KeyPair(at("admin.crt"), at("admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	front, err := tls.LoadX509KeyPair(at("front-proxy-client.crt"), at("front-proxy-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	trust, err := os.ReadFile(at("peer-trust.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trust)
	own, key := harness.NewAuthority(t, "stranger").Pair(t, "127.0.0.1")
	stranger, err := tls.X509KeyPair(own, key)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(c *tls.Config) (*http.Response, error) {
		c.RootCAs, c.MinVersion = roots, tls.VersionTLS12
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c}}
		res, err := client.Get("https://" + peer + "/members")
		if err == nil {
			res.Body.Close()
		}
		return res, err
	}
	if res, err := ask(&tls.Config{Certificates: []tls.Certificate{members}}); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("a member: %v, %v", res, err)
	}
	for who, c := range map[string]*tls.Config{
		"nobody":               {},
		"the administrator":    {Certificates: []tls.Certificate{admin}},
		"the front proxy":      {Certificates: []tls.Certificate{front}},
		"a stranger":           {Certificates: []tls.Certificate{stranger}},
		"nobody, with TLS 1.2": {MaxVersion: tls.VersionTLS12},
	} {
		// The client presents its certificate regardless of the certificate authorities that the server
		// names.
		if len(c.Certificates) > 0 {
			pair := c.Certificates[0]
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		if res, err := ask(c); err == nil {
			t.Errorf("%s: %s", who, res.Status)
		}
	}
	plain := &http.Client{Timeout: 10 * time.Second}
	if res, err := plain.Get("http://" + peer + "/members"); err == nil {
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			t.Error("the members answer without TLS")
		}
	}

	// A member certificate does not authenticate to the API.
	h := s.HTTP(t, nil)
	anonymous := s.HTTP(t, rest.AnonymousClientConfig(s.Admin))
	for _, path := range []string{"/cluster/member", "/cluster/join"} {
		if r := anonymous.Do("GET", path, ""); r.Code < 400 {
			t.Errorf("%s: %d", path, r.Code)
		}
	}
	for _, body := range []string{"", "{}", "[]", `{"token":"gatehouse1.a.b.c"}`, `{"token":"` + strings.Repeat("x", 1<<20) + `"}`, `{"token":"gatehouse1.../x.b.c","name":"x","address":"10.0.0.1:1"}`} {
		if r := anonymous.Do("POST", "/cluster/join", body); r.Code < 400 || r.Code >= 500 || strings.Contains(string(r.Raw), "BEGIN CERTIFICATE") {
			t.Errorf("%.40s: %d, %s", body, r.Code, r.Raw)
		}
	}
	tokensAreForOne(t, s)
	// Without --cluster, the server does not listen for members and rejects joins.
	alone := harness.Shared(t)
	if r := alone.HTTP(t, nil).Do("POST", "/cluster/join", "{}"); r.Code != http.StatusNotFound {
		t.Errorf("a server alone: %d", r.Code)
	}
	// A directory of tokens is not stored as an API object.
	if r := harness.Run(t, "cluster", "token", "create", "--data-dir", s.DataDir); r.Code != 0 {
		t.Fatal(r.Err)
	}
	if r := h.Do("GET", "/api/v1/secrets", ""); strings.Contains(string(r.Raw), "gatehouse1") {
		t.Errorf("secrets: %s", r.Raw)
	}
}

// S31.3, S31.4: a revoked, used or replayed token admits only the holder of the key that it was first used
// with.
func tokensAreForOne(t *testing.T, s *harness.Server) {
	t.Helper()
	newToken := func() string {
		t.Helper()
		r := harness.Run(t, "cluster", "token", "create", "--data-dir", s.DataDir)
		if r.Code != 0 {
			t.Fatal(r.Err)
		}
		return strings.TrimSpace(r.Out)
	}
	ask := func(token, name, address string, key *ecdsa.PrivateKey) string {
		t.Helper()
		request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(map[string]any{
			"token": token, "name": name, "address": address, "different": true, "judging": map[string]string{"etcd-prefix": "/registry", "data format": "1"},
			"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	keys := make([]*ecdsa.PrivateKey, 2)
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	h := s.HTTP(t, rest.AnonymousClientConfig(s.Admin))
	token, revoked := newToken(), newToken()
	if r := harness.Run(t, "cluster", "token", "revoke", strings.Split(revoked, ".")[1], "--data-dir", s.DataDir); r.Code != 0 {
		t.Fatal(r.Err)
	}
	const name, address = "one", "127.0.0.1:1"
	used := ask(token, name, address, keys[0])
	h.Must(http.StatusOK, "POST", "/cluster/join", used)
	for who, body := range map[string]string{
		"another key":                  ask(token, name, address, keys[1]),
		"another server":               ask(token, "two", "127.0.0.1:2", keys[1]),
		"a revoked token":              ask(revoked, "two", "127.0.0.1:2", keys[1]),
		"a wrong secret":               ask(strings.Replace(token, ".", ".x", 2), "two", "127.0.0.1:2", keys[1]),
		"a request that nobody signed": strings.Replace(used, `"request":"`, `"request":"AAAA`, 1),
	} {
		if r := h.Do("POST", "/cluster/join", body); r.Code < 400 || r.Code >= 500 || strings.Contains(string(r.Raw), "BEGIN CERTIFICATE") {
			t.Errorf("%s: %d, %s", who, r.Code, r.Raw)
		}
	}
	// A replayed request returns a certificate for the same key, which the sender does not have.
	again := h.Must(http.StatusOK, "POST", "/cluster/join", used)
	cert, err := base64.StdEncoding.DecodeString(fmt.Sprint(again.Body["cert"]))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(cert)
	if block == nil {
		t.Fatalf("%s", again.Raw)
	}
	signed, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !keys[0].PublicKey.Equal(signed.PublicKey) {
		t.Errorf("a certificate for another key: %v", err)
	}
}
