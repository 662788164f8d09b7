package auth

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// S22.17: a proxy with the right certificate names the user. The same headers from other clients
// are ignored.
func TestOnlyProxiesSayWhoTheCallerIs(t *testing.T) {
	front, other := newAuthority(t, "front"), newAuthority(t, "other")
	content, err := dynamiccertificates.NewStaticCAContent("front", front.pem(t))
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
		certificate *x509.Certificate
		user        string
		ok, fails   bool
	}{
		{name: "a proxy", certificate: front.client(t, "proxy"), user: "alice", ok: true},
		{name: "a proxy that names nobody", certificate: front.client(t, "proxy")},
		{name: "another name", certificate: front.client(t, "somebody"), user: "alice", fails: true},
		{name: "another authority", certificate: other.client(t, "proxy"), user: "alice", fails: true},
		{name: "no certificate", user: "alice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, "/api", nil)
			req.TLS = &tls.ConnectionState{}
			if c.certificate != nil {
				req.TLS.PeerCertificates = []*x509.Certificate{c.certificate}
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
