package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
)

// S31.22: a member that refuses the connection answers; a proxy without a member does not.
func TestWhoAnswersAtAPeerAddress(t *testing.T) {
	dir := t.TempDir()
	peers := keys.NewPeers(keys.Files{}, dir)
	if err := peers.Prepare("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	m := &Member{CertFile: peers.CertFile, KeyFile: peers.KeyFile, CAFile: peers.CAFile}
	pair, err := tls.LoadX509KeyPair(m.CertFile, m.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := os.ReadFile(m.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trust)
	serve := func(clients *x509.CertPool) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("X-Server-From") != "a1" {
				w.WriteHeader(http.StatusGone)
			}
		}))
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	for name, c := range map[string]struct {
		address string
		answers bool
		refusal string
	}{
		"a member":                    {serve(pool), true, ""},
		"a member that trusts others": {serve(x509.NewCertPool()), true, "remote error: tls: "},
		"nothing":                     {closed.Addr().String(), false, ""},
		"a proxy without a member":    {proxy.Addr().String(), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			answers, refusal := m.ask(t.Context(), c.address, "a1")
			if answers != c.answers || c.answers && (refusal == nil) != (c.refusal == "") || c.refusal != "" && !strings.Contains(refusal.Error(), c.refusal) {
				t.Errorf("%t, %v; want %t, %q", answers, refusal, c.answers, c.refusal)
			}
			if _, refusal := m.ask(t.Context(), c.address, "b2"); c.answers && c.refusal == "" && (refusal == nil || !strings.Contains(refusal.Error(), "410")) {
				t.Errorf("as a removed member: %v", refusal)
			}
			if Answers(t.Context(), c.address) != c.answers {
				t.Errorf("without a certificate: %t", !c.answers)
			}
		})
	}
}

// S31.22: the files of certificates that have expired are named with their end.
func TestExpiredCertificatesOfAMember(t *testing.T) {
	dir := t.TempDir()
	peers := keys.NewPeers(keys.Files{}, dir)
	if err := peers.Prepare("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	m := &Member{CertFile: peers.CertFile, CAFile: peers.CAFile}
	if list := m.expired(time.Now()); len(list) > 0 {
		t.Errorf("now: %q", list)
	}
	if list := m.expired(time.Now().AddDate(2, 0, 0)); len(list) != 1 || !strings.Contains(list[0], m.CertFile+", expired on 20") {
		t.Errorf("in two years: %q", list)
	}
	if list := m.expired(time.Now().AddDate(20, 0, 0)); len(list) != 2 || !strings.Contains(list[1], m.CAFile) {
		t.Errorf("in twenty years: %q", list)
	}
	if err := os.WriteFile(filepath.Join(dir, "none"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Member{CertFile: filepath.Join(dir, "none"), CAFile: filepath.Join(dir, "absent")}).CheckCertificates(); err != nil {
		t.Errorf("files without certificates: %v", err)
	}
}
