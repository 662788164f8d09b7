package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// S22.17: a proxy with the right certificate names the user. The same headers from other clients
// are ignored.
func TestOnlyProxiesSayWhoTheCallerIs(t *testing.T) {
	must := func(p *pair, err error) *pair {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	front, other := must(newCA("front")), must(newCA("other"))
	signed := func(ca *pair, name string) *pair {
		return must(ca.sign(pkix.Name{CommonName: name}, x509.ExtKeyUsageClientAuth, nil))
	}
	content, err := dynamiccertificates.NewStaticCAContent("front", front.certPEM)
	if err != nil {
		t.Fatal(err)
	}
	headers := func(names ...string) headerrequest.StaticStringSlice { return names }
	authenticator := newProxies(&authenticatorfactory.RequestHeaderConfig{
		CAContentProvider: content, AllowedClientNames: headers("proxy"),
		UsernameHeaders: headers("X-Remote-User"), UIDHeaders: headers("X-Remote-Uid"), GroupHeaders: headers("X-Remote-Group"), ExtraHeaderPrefixes: headers("X-Remote-Extra-"),
	})
	for _, c := range []struct {
		name        string
		certificate *pair
		user        string
		ok, fails   bool
	}{
		{name: "a proxy", certificate: signed(front, "proxy"), user: "alice", ok: true},
		{name: "a proxy that names nobody", certificate: signed(front, "proxy")},
		{name: "another name", certificate: signed(front, "somebody"), user: "alice", fails: true},
		{name: "another authority", certificate: signed(other, "proxy"), user: "alice", fails: true},
		{name: "no certificate", user: "alice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, "/api", nil)
			req.TLS = &tls.ConnectionState{}
			if c.certificate != nil {
				req.TLS.PeerCertificates = []*x509.Certificate{c.certificate.cert}
			}
			if c.user != "" {
				req.Header.Set("X-Remote-User", c.user)
				req.Header.Set("X-Remote-Group", "devs")
				req.Header.Set("X-Remote-Uid", "uid")
			}
			response, ok, err := authenticator.AuthenticateRequest(req)
			if ok != c.ok || (err != nil) != c.fails {
				t.Fatalf("%v, %v, %v", response, ok, err)
			}
			if ok {
				got := []any{response.User.GetName(), response.User.GetUID(), response.User.GetGroups()}
				if diff := cmp.Diff([]any{"alice", "uid", []string{"devs"}}, got); diff != "" {
					t.Errorf("user (-want +got):\n%s", diff)
				}
			}
		})
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
