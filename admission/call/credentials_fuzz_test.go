package call

import (
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// FuzzKubeconfig: S8.12 to S8.19. Loading a kubeconfig file never panics, with any content; an
// error names the file; the files of an accepted kubeconfig's users have absolute names; and for
// every target the result is the first existing user in a list of all names for it, written down in
// the order of precedence. The fields of such a user give a client configuration, or an error.
func FuzzKubeconfig(f *testing.F) {
	const head = "apiVersion: v1\nkind: Config\n"
	for _, seed := range []string{
		"", "{}", head, "kind: Pod", "\x00", "users: 5", head + "users: [{}]", head + "users: [{name: '*', user: null}]",
		head + "users:\n- name: hook.example.com\n  user: {token: t}\n- name: '*.example.com:8443'\n  user: {username: u, password: p}\n- name: '*'\n  user: {client-certificate: c.crt, client-key: c.key}\n",
		head + "users: [{name: '*.svc', user: {tokenFile: t, token: u, username: v}}, {name: 'check.shop.svc:8443', user: {}}]",
		head + "users: [{name: 'https://hook.example.com/check', user: {exec: {command: c, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}}]",
		head + "users: [{name: 'https://hook.example.com', user: {auth-provider: {name: gcp}}}]",
		head + "users: [{name: 'https://hook.example.com:8443', user: {client-certificate-data: eA==, client-key-data: eA==, as: a, as-uid: u, as-groups: [g], as-user-extra: {k: [v]}}}]",
		head + "contexts: [{name: c, context: {user: me, cluster: none}}]\ncurrent-context: c\nusers: [{name: me, user: {token: t}}]",
		head + "contexts: [{name: c, context: {user: gone}}]\ncurrent-context: c\n",
		head + "users: [{name: a, user: {token: b}}, {name: a, user: {token: c}}]\nclusters: [{name: x, cluster: {server: 5}}]",
		`{"apiVersion":"v1","kind":"Config","users":[{"name":"hook.example.com:443","user":{"token":"t"}}]}`,
	} {
		f.Add([]byte(seed))
	}
	file := filepath.Join(f.TempDir(), "webhooks.kubeconfig")
	service := func(port int32) registration.ClientConfig {
		return registration.ClientConfig{Service: &registration.Service{Namespace: "shop", Name: "check", Port: port}}
	}
	targets := []registration.ClientConfig{
		service(443), service(8443),
		{URL: "https://hook.example.com/check"}, {URL: "https://hook.example.com:8443/check"}, {URL: "https://[::1]:9443"},
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		write(t, file, string(content))
		c, err := LoadCredentials(file)
		if (c == nil) == (err == nil) {
			t.Fatalf("credentials %v, error %v", c, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), file) {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		c.inCluster = func() (*rest.Config, error) { return nil, rest.ErrNotInCluster }
		for name, user := range c.users {
			for _, path := range []string{user.TokenFile, user.ClientCertificate, user.ClientKey} {
				if path != "" && !filepath.IsAbs(path) {
					t.Errorf("user %q has the relative file %q", name, path)
				}
			}
		}
		for _, target := range targets {
			u, err := Address(&target)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			for _, name := range append(namesOf(&target, u), c.current) {
				if name != "" && c.users[name] != nil {
					want = name
					break
				}
			}
			id := c.lookup(&target, u)
			if got := strings.TrimPrefix(id.name, "user "); got != want {
				t.Errorf("%s: found user %q, want %q", u, got, want)
			}
			cfg, files, err := id.config()
			if (cfg == nil) == (err == nil) {
				t.Errorf("%s: configuration %v, error %v", u, cfg, err)
			}
			if err == nil && files.token != "" && cfg.BearerToken != "" {
				t.Errorf("%s: a token and a file with another", u)
			}
		}
	})
}

// namesOf lists the user names for a target in order of precedence (S8.14, S8.16 and S8.16a).
func namesOf(cc *registration.ClientConfig, u *url.URL) []string {
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = "443"
	}
	target := net.JoinHostPort(host, port)
	var names []string
	if cc.Service == nil {
		names = []string{cc.URL, "https://" + u.Host, "https://" + target}
		if port == "443" {
			names = append(names, "https://"+host)
		}
	}
	wild := func(name string) {
		names = append(names, name)
		labels := strings.Split(name, ".")
		for i := 1; i < len(labels); i++ {
			names = append(names, "*."+strings.Join(labels[i:], "."))
		}
	}
	wild(target)
	if port == "443" || cc.Service != nil {
		wild(host)
	}
	return append(names, "*")
}
