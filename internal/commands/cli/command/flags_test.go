package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const twoContexts = `{apiVersion: v1, kind: Config, current-context: one,
clusters: [{name: a, cluster: {server: "https://a.example.com"}}, {name: b, cluster: {server: "https://b.example.com:6443"}}],
contexts: [{name: one, context: {cluster: a, namespace: of-one}}, {name: two, context: {cluster: b}}]}`

func TestKubeconfigFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	for _, tc := range []struct {
		name, text               string
		flags                    KubeconfigFlags
		host, namespace, problem string
	}{
		{"the current context", twoContexts, KubeconfigFlags{}, "https://a.example.com", "of-one", ""},
		{"another context", twoContexts, KubeconfigFlags{Context: "two"}, "https://b.example.com:6443", "default", ""},
		{"another namespace", twoContexts, KubeconfigFlags{Namespace: "shop"}, "https://a.example.com", "shop", ""},
		{"a context that is not there", twoContexts, KubeconfigFlags{Context: "three"}, "", "", `kubeconfig: context "three" does not exist`},
		{"a file without a server, as for kubectl", "{}", KubeconfigFlags{}, UnnamedServer, "default", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := &Cluster{Flags: tc.flags}
			c.Flags.KubeConfig = file
			config, err := c.Open()
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) {
					t.Errorf("got %v, want %q", err, tc.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if namespace, err := c.Namespace(); err != nil || config.Host != tc.host || namespace != tc.namespace {
				t.Errorf("host %s, namespace %s, %v", config.Host, namespace, err)
			}
		})
	}
}

// The cache of a host has the name that kubectl gives it, so that both programs read one cache.
func TestNamesOfCaches(t *testing.T) {
	for host, want := range map[string]string{
		"https://127.0.0.1:6443":        "127.0.0.1_6443",
		"http://a-b.example.com/prefix": "a_b.example.com/prefix",
		"[::1]:6443":                    "___1__6443",
	} {
		if got := cacheName(host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
