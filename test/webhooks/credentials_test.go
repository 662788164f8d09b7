package webhooks

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestCredentials verifies the identity that webhooks see for the server, with the kubeconfigs named in
// AdmissionConfiguration files of both kinds.
func TestCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const suffix = ".ns1.svc"
	services := []string{"exact", "old", "wild", "bare", "deep", "cert", "none"}
	var hosts []string
	for _, s := range services {
		hosts = append(hosts, s+suffix)
	}
	hooks := harness.NewWebhookServer(t, hosts)
	hook := hooks.Hook("/", harness.Allow)
	byURL := hooks.Hook("/by-url", harness.Allow)
	_, port, err := net.SplitHostPort(hooks.Address())
	if err != nil {
		t.Fatal(err)
	}
	clients := harness.NewAuthority(t, "clients")
	cert, key := clients.Pair(t, "gatehouse-client")
	writeFile(t, filepath.Join(dir, "client.crt"), string(cert))
	writeFile(t, filepath.Join(dir, "client.key"), string(key))
	tokenFile := writeFile(t, filepath.Join(dir, "token"), "from-a-file")

	// Names with a port match exactly, so they include the port of the webhooks.
	writeFile(t, filepath.Join(dir, "mutating.kubeconfig"), fmt.Sprintf(`
apiVersion: v1
kind: Config
users:
- {name: 'exact.ns1.svc:%[1]s', user: {username: alice, password: secret}}
- {name: 'exact.ns1.svc', user: {token: not-this-one}}
- {name: 'old.ns1.svc', user: {token: by-name}}
- {name: '*.ns1.svc:%[1]s', user: {token: wildcard-with-port}}
- {name: '*.ns1.svc', user: {token: not-this-one}}
- {name: 'https://127.0.0.1:%[1]s/by-url', user: {token: by-url}}
- {name: '127.0.0.1:%[1]s', user: {client-certificate: client.crt, client-key: client.key}}
- {name: '*', user: {token: anybody}}
`, port))
	writeFile(t, filepath.Join(dir, "validating.kubeconfig"), fmt.Sprintf(`
apiVersion: v1
kind: Config
users:
- {name: '*.ns1.svc', user: {token: wildcard-without-port}}
- {name: '*.svc', user: {token: not-this-one}}
- {name: 'localhost:%s', user: {tokenFile: %s}}
- {name: me, user: {token: current-context}}
contexts:
- {name: c, context: {user: me, cluster: x}}
current-context: c
`, port, tokenFile))
	writeFile(t, filepath.Join(dir, "validating.yaml"), "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nkubeConfigFile: "+filepath.Join(dir, "validating.kubeconfig")+"\n")

	for _, version := range speed.Some(t, 1, []string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}) {
		t.Run(version, func(t *testing.T) {
			configuration := writeFile(t, filepath.Join(t.TempDir(), "admission.yaml"), fmt.Sprintf(`
apiVersion: %s
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1alpha1, kind: WebhookAdmission, kubeConfigFile: %s}
- name: ValidatingAdmissionWebhook
  path: %s
`, version, filepath.Join(dir, "mutating.kubeconfig"), filepath.Join(dir, "validating.yaml")))
			s := harness.Start(t, "--admission-consistency", "strict", "--admission-control-config-file", configuration)
			h := s.HTTP(t, nil)
			h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", toJSON(`{apiVersion: v1, kind: Namespace, metadata: {name: ns1}}`))
			for _, name := range services {
				h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/ns1/services", toJSON(
					`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {type: ExternalName, externalName: localhost}}`, name))
			}
			service := func(name string) string {
				return fmt.Sprintf(`clientConfig: {service: {namespace: ns1, name: %s, port: %s}, caBundle: %s}`, name, port, hook.CABundle())
			}
			url := func(url string) string {
				return fmt.Sprintf(`clientConfig: {url: %q, caBundle: %s}`, url, hook.CABundle())
			}
			basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:secret"))
			for _, c := range []struct{ name, kind, target, authorization, certificate string }{
				{"S8.14 (1) exact target, basic", mutating, service("exact"), basic, ""},
				{"S8.14 (2) wildcard with port, before S8.16a", mutating, service("wild"), "Bearer wildcard-with-port", ""},
				{"S8.14 (2) wildcard with port, before a name without", mutating, service("old"), "Bearer wildcard-with-port", ""},
				{"S8.16a (4) wildcard without port", validating, service("bare"), "Bearer wildcard-without-port", ""},
				{"S8.14 (1) exact target, certificate", mutating, url(hooks.URL), "", "gatehouse-client"},
				{"S8.16 the URL itself", mutating, url(byURL.URL()), "Bearer by-url", ""},
				{"S8.14 (6) anybody", mutating, url("https://localhost:" + port), "Bearer anybody", ""},
				{"S8.17 token file", validating, url("https://localhost:" + port), "Bearer from-a-file", ""},
				{"S8.14 (7) current context", validating, url(hooks.URL), "Bearer current-context", ""},
			} {
				t.Run(c.name+", "+strings.TrimSuffix(c.kind, "WebhookConfiguration"), func(t *testing.T) {
					hook.Forget()
					byURL.Forget()
					register(t, s, "v1", c.kind, webhook("who", "default", hook, c.target))
					s.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps("default")+"?dryRun=All", configMap("c"))
					asked := append(hook.Reviews(), byURL.Reviews()...)
					if len(asked) != 1 {
						t.Fatalf("%d calls", len(asked))
					}
					r := asked[0].HTTP
					want(t, "Authorization", r.Header.Get("Authorization"), c.authorization)
					certificate := ""
					if peers := r.TLS.PeerCertificates; len(peers) > 0 {
						certificate = peers[0].Subject.CommonName
					}
					want(t, "client certificate", certificate, c.certificate)
				})
			}
			t.Run("S8.14 (8) S8.20 a plugin without a kubeconfig is anonymous", func(t *testing.T) {
				hook.Forget()
				w := webhook("who", "default", hook, fmt.Sprintf("clientConfig: {service: {namespace: ns1, name: none}, caBundle: %s}", hook.CABundle()))
				for _, field := range []string{"sideEffects", "timeoutSeconds", "admissionReviewVersions", "failurePolicy"} {
					delete(w, field)
				}
				h := s.HTTP(t, nil)
				h.Must(http.StatusOK, "PATCH", "/api/v1/namespaces/ns1/services/none", `{"spec":{"ports":[{"port":`+port+`}]}}`, "Content-Type", mergePatch)
				register(t, s, "v1alpha1", "ExternalAdmissionHookConfiguration", w)
				i := 0
				harness.Eventually(t, "a call", func() error {
					i++
					if r := h.Do("POST", configMaps("default"), configMap(fmt.Sprintf("c%d", i))); r.Code != http.StatusCreated || len(hook.Reviews()) == 0 {
						return fmt.Errorf("%d %s", r.Code, r.Raw)
					}
					return nil
				})
				want(t, "Authorization", hook.Last(t).HTTP.Header.Get("Authorization"), "")
			})
		})
	}
}

func TestUnusableCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range speed.Some(t, 1, []struct{ name, content, text string }{
		{"S8.19 no such kubeconfig", "{kubeConfigFile: " + dir + "/none}", dir + "/none"},
		{"S9.13 a relative name", "{kubeConfigFile: some.kubeconfig}", "must be an absolute file path"},
	}) {
		t.Run(c.name, func(t *testing.T) {
			file := writeFile(t, filepath.Join(t.TempDir(), "admission.yaml"), `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: `+strings.Replace(c.content, "{", "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, ", 1))
			if text := harness.Refuses(t, "--admission-control-config-file", file); !strings.Contains(text, c.text) || strings.Contains(text, "\n") {
				t.Errorf("refused with %q, want one sentence with %q", text, c.text)
			}
		})
	}
}
