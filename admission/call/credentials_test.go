package call

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// kubeconfig writes a file with the users, given as YAML of their "user" member.
func kubeconfig(t *testing.T, current string, users map[string]string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Config\nusers:\n")
	for name, user := range users {
		fmt.Fprintf(&b, "- name: %q\n  user: %s\n", name, user)
	}
	if current != "" {
		fmt.Fprintf(&b, "contexts:\n- name: c\n  context: {user: %q, cluster: ignored}\ncurrent-context: c\n", current)
	}
	path := filepath.Join(t.TempDir(), "webhooks.kubeconfig")
	write(t, path, b.String())
	return path
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, path string) *Credentials {
	t.Helper()
	c, err := LoadCredentials(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLookup(t *testing.T) {
	svc := func(namespace, name string, port int32) registration.ClientConfig {
		return registration.ClientConfig{Service: &registration.Service{Namespace: namespace, Name: name, Port: port}}
	}
	at := func(u string) registration.ClientConfig { return registration.ClientConfig{URL: u} }
	hook := at("https://hook.webhook-company.org/check")
	odd := at("https://hook.webhook-company.org:9443/check")
	cases := []struct {
		name    string
		users   string
		current string
		pod     bool
		target  registration.ClientConfig
		want    string
	}{
		{name: "S8.13 S8.14 (1) exact target, 443 added", users: "hook.webhook-company.org:443 *.webhook-company.org:443", target: hook, want: "hook.webhook-company.org:443"},
		{name: "S8.14 (1) exact target with port", users: "hook.webhook-company.org:9443 *", target: odd, want: "hook.webhook-company.org:9443"},
		{name: "S8.13 S8.14 (1) service", users: "check.shop.svc:443 *.shop.svc:443", target: svc("shop", "check", 443), want: "check.shop.svc:443"},
		{name: "S8.13 service without port", users: "check.shop.svc:443", target: svc("shop", "check", 0), want: "check.shop.svc:443"},
		{name: "S8.14 (2) wildcards with port, longest first", users: "*.org:443 *.webhook-company.org:443", target: hook, want: "*.webhook-company.org:443"},
		{name: "S8.14 (2) before (3)", users: "*.org:443 hook.webhook-company.org", target: hook, want: "*.org:443"},
		{name: "S8.14 (2) port stays attached", users: "*.webhook-company.org:9443", target: odd, want: "*.webhook-company.org:9443"},
		{name: "S8.14 (3) exact host for 443", users: "hook.webhook-company.org *.webhook-company.org", target: hook, want: "hook.webhook-company.org"},
		{name: "S8.15 (3) not for other ports", users: "hook.webhook-company.org", target: odd},
		{name: "S8.14 (4) wildcards without port for 443", users: "*.org *.webhook-company.org", target: hook, want: "*.webhook-company.org"},
		{name: "S8.15 (4) not for other ports", users: "*.webhook-company.org *.org", target: odd},
		{name: "S8.14 (5) the pod's credentials for the API server", users: "*", pod: true, target: svc("default", "kubernetes", 443), want: "pod"},
		{name: "S8.14 (5) after named users", users: "*.svc *", pod: true, target: svc("default", "kubernetes", 443), want: "*.svc"},
		{name: "S8.14 (5) not in a pod", users: "*", target: svc("default", "kubernetes", 443), want: "*"},
		{name: "S8.14 (5) other ports", users: "*", pod: true, target: svc("default", "kubernetes", 8443), want: "*"},
		{name: "S8.14 (6) star", users: "* me", current: "me", target: odd, want: "*"},
		{name: "S8.14 (7) user of the current context", users: "me other", current: "me", target: odd, want: "me"},
		{name: "S8.14 (7) a context without its user", users: "other", current: "me", target: odd},
		{name: "S8.14 (8) anonymous", users: "other", target: odd},
		{name: "S8.12 no file", target: hook},
		{name: "S8.15 no partial labels", users: "*ook.webhook-company.org hook.*", target: hook},
		{name: "S8.15 a wildcard never matches its parent", users: "*.webhook-company.org", target: at("https://webhook-company.org")},
		{name: "S8.16 the full URL", users: "https://hook.webhook-company.org/check hook.webhook-company.org:443", target: hook, want: "https://hook.webhook-company.org/check"},
		{name: "S8.16 scheme and host", users: "https://hook.webhook-company.org hook.webhook-company.org:443", target: hook, want: "https://hook.webhook-company.org"},
		{name: "S8.16 scheme, host and port", users: "https://hook.webhook-company.org:9443 hook.webhook-company.org:9443", target: odd, want: "https://hook.webhook-company.org:9443"},
		{name: "S8.16 443 may be written or not", users: "https://hook.webhook-company.org:443", target: hook, want: "https://hook.webhook-company.org:443"},
		{name: "S8.16 no port is 443", users: "https://hook.webhook-company.org", target: odd},
		{name: "S8.16a services: host without port, at every port", users: "check.shop.svc", target: svc("shop", "check", 8443), want: "check.shop.svc"},
		{name: "S8.16a services: wildcards without port, at every port", users: "*.svc *.shop.svc", target: svc("shop", "check", 8443), want: "*.shop.svc"},
		{name: "S8.16a entries with the port win", users: "check.shop.svc *.svc:8443", target: svc("shop", "check", 8443), want: "*.svc:8443"},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			users := map[string]string{}
			for _, u := range strings.Fields(tt.users) {
				users[u] = "{token: t}"
			}
			c := load(t, kubeconfig(t, tt.current, users))
			c.inCluster = func() (*rest.Config, error) {
				if !tt.pod {
					return nil, rest.ErrNotInCluster
				}
				return &rest.Config{}, nil
			}
			u, err := Address(&tt.target)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimPrefix(c.lookup(&tt.target, u).name, "user "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	var none *Credentials
	if id := none.lookup(&hook, &url.URL{Host: "x"}); id.name != "" {
		t.Errorf("nil credentials gave %q", id.name)
	}
}

func TestLoadCredentials(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	write(t, garbage, "users: {not a list")
	for name, path := range map[string]string{"S8.19 unreadable": filepath.Join(t.TempDir(), "none"), "S8.19 invalid": garbage} {
		if _, err := LoadCredentials(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if c := load(t, ""); c == nil || len(c.users) != 0 {
		t.Errorf("S8.12: no file gave %+v", c)
	}
}

// whoami answers reviews with a description of the client from its server.
func whoami(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	who := []string{r.Header.Get("Authorization")}
	if len(r.TLS.PeerCertificates) > 0 {
		who = append(who, "CN="+r.TLS.PeerCertificates[0].Subject.CommonName)
	}
	for _, h := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes"} {
		if v := r.Header.Values(h); len(v) > 0 {
			who = append(who, h+"="+strings.Join(v, "+"))
		}
	}
	fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,"allowed":true,"warnings":[%q]}}`,
		testUID, strings.Join(who, " "))
}

func TestCredentialsAreUsed(t *testing.T) {
	ca := newAuthority(t, "ca")
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	s := serve(t, ca.serving(t, "127.0.0.1"), http.HandlerFunc(whoami), func(s *httptest.Server) {
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.VerifyClientCertIfGiven, clients
	})
	dir := t.TempDir()
	certPEM, keyPEM := ca.pair(t, time.Now().Add(time.Hour), "apiserver")
	write(t, filepath.Join(dir, "token"), "from-file\n")
	write(t, filepath.Join(dir, "client.crt"), string(certPEM))
	write(t, filepath.Join(dir, "client.key"), string(keyPEM))
	write(t, filepath.Join(dir, "plugin"), `#!/bin/sh
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"from-plugin"}}'
`)
	if err := os.Chmod(filepath.Join(dir, "plugin"), 0o700); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, user, want, err string
	}{
		{name: "S8.17 token", user: "{token: secret}", want: "Bearer secret"},
		{name: "S8.17 tokenFile, S8.18 relative", user: "{tokenFile: token}", want: "Bearer from-file"},
		{name: "S8.17 token wins over tokenFile", user: "{token: secret, tokenFile: token}", want: "Bearer secret"},
		{name: "S8.17 basic", user: "{username: u, password: p}", want: "Basic dTpw"},
		{name: "S8.17 client certificate, S8.18 relative", user: "{client-certificate: client.crt, client-key: client.key}", want: " CN=apiserver"},
		{name: "S8.17 client certificate and token", user: "{client-certificate: client.crt, client-key: client.key, token: secret}", want: "Bearer secret CN=apiserver"},
		{name: "S8.17 impersonation", user: "{token: secret, as: jane, as-uid: u1, as-groups: [a, b], as-user-extra: {scopes: [x]}}",
			want: "Bearer secret Impersonate-User=jane Impersonate-Group=a+b Impersonate-Uid=u1 Impersonate-Extra-Scopes=x"},
		{name: "S8.17 exec", user: "{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never}}", want: "Bearer from-plugin"},
		{name: "S8.17 auth-provider", user: "{auth-provider: {name: gcp}}", err: "could not get REST client: auth provider not supported"},
		{name: "S8.17 token and basic", user: "{token: secret, username: u, password: p}", err: "could not get REST client: username/password or bearer token may be set, but not both"},
		{name: "S8.17 token file is missing", user: "{tokenFile: nowhere}", err: "could not get REST client: reading the token: stat "},
		{name: "S8.17 certificate is missing", user: "{client-certificate: nowhere, client-key: client.key}", err: "could not get REST client: "},
		{name: "S8.17 key is another one's", user: "{client-certificate: client.crt, client-key: token}", err: "failed to find any PEM data"},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, "kubeconfig")
			write(t, path, "apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user: "+tt.user+"\n")
			c := newCaller(t, Options{Credentials: load(t, path)})
			r, err := c.Call(t.Context(), invocation(urlHook(s.URL, ca.bundle)))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want %q", err, tt.err)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("a token is in %q", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, r.Warnings[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}

	t.Run("S12.13 client certificate for those without a user", func(t *testing.T) {
		path := kubeconfig(t, "", map[string]string{"other.example.com": "{token: t}"})
		withCert, err := load(t, path).WithClientCertificate(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
		if err != nil {
			t.Fatal(err)
		}
		r := mustCall(t, newCaller(t, Options{Credentials: withCert}), urlHook(s.URL, ca.bundle))
		if r.Warnings[0] != " CN=apiserver" {
			t.Errorf("got %q", r.Warnings[0])
		}
		if _, err := (*Credentials)(nil).WithClientCertificate("nowhere", "nowhere"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// TestPodCredentials: the roots of the pod's credentials count in addition to the bundle (S8.5).
func TestPodCredentials(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	s := serve(t, ca.serving(t, "kubernetes.default.svc"), http.HandlerFunc(whoami), nil)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.crt"), string(ca.bundle))
	write(t, filepath.Join(dir, "token"), "pod-token")
	for name, bundle := range map[string][]byte{"S8.5 no bundle": nil, "S8.5 S8.14 another bundle": other.bundle} {
		t.Run(name, func(t *testing.T) {
			creds := load(t, "")
			creds.inCluster = func() (*rest.Config, error) {
				return &rest.Config{
					BearerToken: "old", BearerTokenFile: filepath.Join(dir, "token"),
					TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")},
				}, nil
			}
			c := newCaller(t, Options{Credentials: creds, Resolver: fixed(s.Listener.Addr().String())})
			h := serviceHook(443, "", bundle)
			h.ClientConfig.Service.Namespace, h.ClientConfig.Service.Name = "default", "kubernetes"
			if r := mustCall(t, c, h); r.Warnings[0] != "Bearer pod-token" {
				t.Errorf("got %q", r.Warnings[0])
			}
		})
	}
}

func TestFilesAreReadAgain(t *testing.T) {
	ca := newAuthority(t, "ca")
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	s := serve(t, ca.serving(t, "127.0.0.1"), http.HandlerFunc(whoami), func(s *httptest.Server) {
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.VerifyClientCertIfGiven, clients
	})
	dir := t.TempDir()
	// turn replaces the files; each turn has its own modification time, as in practice.
	turn := func(n int, token string) {
		certPEM, keyPEM := ca.pair(t, time.Now().Add(time.Hour), token)
		for name, content := range map[string]string{"token": token, "crt": string(certPEM), "key": string(keyPEM)} {
			path := filepath.Join(dir, name)
			write(t, path, content)
			when := time.Now().Add(time.Duration(n) * time.Second)
			if err := os.Chtimes(path, when, when); err != nil {
				t.Fatal(err)
			}
		}
	}
	turn(0, "one")
	path := filepath.Join(dir, "kubeconfig")
	write(t, path, "apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user: {tokenFile: token, client-certificate: crt, client-key: key}\n")
	c := newCaller(t, Options{Credentials: load(t, path)})
	h := urlHook(s.URL, ca.bundle)
	for n, token := range []string{"one", "two", "six"} {
		turn(n, token)
		for range 2 {
			if got, want := mustCall(t, c, h).Warnings[0], "Bearer "+token+" CN="+token; got != want {
				t.Errorf("S8.18: got %q, want %q", got, want)
			}
		}
	}
	if err := os.Remove(filepath.Join(dir, "token")); err != nil {
		t.Fatal(err)
	}
	if got, want := mustCall(t, c, h).Warnings[0], "Bearer six CN=six"; got != want {
		t.Errorf("S8.18: while the file is away: got %q, want %q", got, want)
	}
}
