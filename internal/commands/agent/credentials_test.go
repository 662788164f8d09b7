package agent

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// S32.6: the credentials are created once, and the printed manifests contain them.
func TestCredentials(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agent")
	service := Service{"watch", "agent"}
	if made, err := EnsureCredentials(dir, service); err != nil || !made {
		t.Fatal(made, err)
	}
	first, err := WebhookKubeconfig(dir, "10.96.7.7:443", service)
	if err != nil {
		t.Fatal(err)
	}
	if made, err := EnsureCredentials(dir, service); err != nil || made {
		t.Fatal(made, err)
	}
	again, err := WebhookKubeconfig(dir, "10.96.7.7:443", service)
	if err != nil || string(first) != string(again) {
		t.Errorf("the credentials change: %v", err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(first)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://10.96.7.7:443"+Path || config.ServerName != "agent.watch.svc" || len(config.BearerToken) < minToken {
		t.Errorf("%s as %s with a token of %d characters", config.Host, config.ServerName, len(config.BearerToken))
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: config.ServerName, Roots: roots}); err != nil {
		t.Error(err)
	}
	manifest, err := APIService(dir, service)
	if err != nil || !strings.Contains(manifest, "service: {namespace: watch, name: agent, port: 443}") {
		t.Errorf("%s %v", manifest, err)
	}
	for _, name := range []string{"tls.key", TokenFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if err := os.Remove(filepath.Join(dir, TokenFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureCredentials(dir, service); err == nil || !strings.Contains(err.Error(), "and not "+TokenFile) {
		t.Errorf("a part of the credentials: %v", err)
	}
	for _, address := range []string{"10.96.7.7", ":443", "https://10.96.7.7:443", ""} {
		if _, err := WebhookKubeconfig(dir, address, service); err == nil {
			t.Errorf("%q is taken for HOST:PORT", address)
		}
	}
	for text, ok := range map[string]bool{"a/b": true, "a": false, "a/": false, "/b": false, "a/b/c": false} {
		if _, err := ParseService(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
