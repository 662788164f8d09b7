package plugins

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	policywebhook "github.com/gatehouse-dev/gatehouse/plugins/webhook"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// drawnName matches random names: the server generates the names of pods, and ServiceAccount generates the
// names of volumes.
var drawnName = regexp.MustCompile(`\b(p|kube-api-access)-[a-z0-9]{5}\b`)

// served are the plugins that a server of webhooks has in place of the main server.
var served = []string{"LimitRanger", "PodSecurity", "Priority", "DefaultTolerationSeconds", "AlwaysPullImages", "ResourceQuota", "DenyServiceExternalIPs"}

// S9.16: plugins served as webhooks validate and mutate requests as they do in the server.
func TestPluginsAsWebhooksJudgeAsInsideTheServer(t *testing.T) {
	t.Parallel()
	plugins := served
	inside := harness.Start(t, "--enable-admission-plugins", "AlwaysPullImages,DenyServiceExternalIPs")
	outside := harness.Sole(t, "--disable-admission-plugins", strings.Join(plugins, ","), "--admission-consistency", "strict")
	serveWebhooks(t, policywebhook.Options{Plugins: plugins, Cluster: outside.Admin})

	const ns = "judged"
	clients := [2]*harness.HTTP{inside.HTTP(t, nil), outside.HTTP(t, nil)}
	for i, h := range clients {
		h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+ns+`","labels":{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/warn":"restricted"}}}`)
		[]*harness.Server{inside, outside}[i].Account(t, ns)
		h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/limitranges", `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","default":{"cpu":"2"},"defaultRequest":{"cpu":"1"},"max":{"cpu":"4"}}]}}`)
		h.Must(http.StatusCreated, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", `{"metadata":{"name":"high"},"value":1000}`)
		h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"count/secrets":"0"}}}`)
		h.Must(http.StatusOK, "PATCH", "/api/v1/namespaces/"+ns+"/resourcequotas/q/status", `{"status":{"hard":{"count/secrets":"0"},"used":{"count/secrets":"0"}}}`, "Content-Type", mergePatch)
	}
	in := func(resource string) string { return "/api/v1/namespaces/" + ns + "/" + resource + "?dryRun=All" }
	for _, tt := range []struct {
		name, path, body string
		code             int
	}{
		{"a plain pod", in("pods"), podOf("", "", ""), 201},
		{"a pod within its limits", in("pods"), podOf("", `,"resources":{"limits":{"cpu":"3"}}`, ""), 201},
		{"a pod beyond its limits", in("pods"), podOf("", `,"resources":{"limits":{"cpu":"5"}}`, ""), 403},
		{"a pod of a priority class", in("pods"), podOf("", "", `,"priorityClassName":"high"`), 201},
		{"a pod of a priority class that there is not", in("pods"), podOf("", "", `,"priorityClassName":"low"`), 403},
		{"a pod with a priority", in("pods"), podOf("", "", `,"priority":7`), 403},
		{"a pod that tolerates", in("pods"), podOf("", "", `,"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists"}]`), 201},
		{"a pod on the network of its node", in("pods"), podOf("", "", `,"hostNetwork":true`), 403},
		{"a privileged pod", in("pods"), podOf("", `,"securityContext":{"privileged":true}`, ""), 403},
		{"a pod that never pulls", in("pods"), podOf("", `,"imagePullPolicy":"Never"`, ""), 201},
		{"a deployment of pods that are only warned of", "/apis/apps/v1/namespaces/" + ns + "/deployments?dryRun=All", `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, 201},
		{"a claim", in("persistentvolumeclaims"), `{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, 201},
		{"a secret beyond the quota", in("secrets"), `{"metadata":{"name":"s"}}`, 403},
		{"a config map, which no plugin is about", in("configmaps"), `{"metadata":{"name":"c"}}`, 201},
		{"a service with an external IP", in("services"), `{"metadata":{"name":"s"},"spec":{"clusterIP":"None","ports":[{"port":80}],"externalIPs":["1.2.3.4"]}}`, 403},
		{"a second default priority class is no matter while there is none", "/apis/scheduling.k8s.io/v1/priorityclasses?dryRun=All", `{"metadata":{"name":"d"},"value":1,"globalDefault":true}`, 201},
	} {
		t.Run(tt.name, func(t *testing.T) {
			harness.Eventually(t, "both agree", func() error {
				var answers [2]map[string]any
				for i, h := range clients {
					r := h.Do("POST", tt.path, tt.body)
					if r.Code != tt.code {
						return fmt.Errorf("server %d: %d %s, want %d", i, r.Code, r.Raw, tt.code)
					}
					// The message of a webhook's denial begins with the webhook's name.
					message := fmt.Sprint(r.Body["message"])
					if _, denied, ok := strings.Cut(message, " denied the request: "); ok {
						message = denied
					}
					message = drawnName.ReplaceAllString(message, "$1-NAME")
					spec, err := json.Marshal(r.Body["spec"])
					if err != nil {
						return err
					}
					// Validating webhooks run in parallel, so a webhook may warn about an object that another
					// webhook rejects.
					var warnings []string
					if r.Code == http.StatusCreated {
						warnings = r.Header.Values("Warning")
					}
					answers[i] = map[string]any{"spec": drawnName.ReplaceAllString(string(spec), "$1-NAME"), "reason": r.Body["reason"], "message": message, "warnings": warnings}
				}
				if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
					return fmt.Errorf("(-inside +webhook):\n%s", diff)
				}
				return nil
			})
		})
	}
}

// S9.16: when the certificate is renewed, the cluster trusts the new certificate before the server uses it,
// so that no request fails.
func TestPluginsAsWebhooksRenewTheirCertificate(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--disable-admission-plugins", strings.Join(served, ","), "--admission-consistency", "strict")
	ns, dir := s.Namespace(t), t.TempDir()
	// The certificate is renewed after two thirds of its lifetime, five seconds from now.
	life := 3 * time.Hour
	until := time.Now().Add(life/3 + 5*time.Second)
	first := writeCertificate(t, dir, until.Add(-life), until)
	url := serveWebhooks(t, policywebhook.Options{Plugins: []string{"DefaultTolerationSeconds"}, Cluster: s.Admin, CertDir: dir})
	h, before := s.HTTP(t, nil), false
	harness.Eventually(t, "the server serves with another certificate", func() error {
		r := h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods?dryRun=All", podOf("", "", ""))
		if !strings.Contains(string(r.Raw), "node.kubernetes.io/unreachable") {
			t.Errorf("the plugin did not see the pod: %s", r.Raw)
		}
		conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		defer conn.Close()
		if served := conn.ConnectionState().PeerCertificates[0]; served.Equal(first) {
			before = true
			return errors.New("it is the first one")
		}
		return nil
	})
	want(t, "the server served with the first one before", before, true)
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods?dryRun=All", podOf("", "", ""))
	found := h.Get("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + policywebhook.RegistrationName)
	bundle, err := base64.StdEncoding.DecodeString(fmt.Sprint(harness.At(found.At("webhooks").([]any)[0], "clientConfig", "caBundle")))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "certificates that the registration trusts", strings.Count(string(bundle), "BEGIN CERTIFICATE"), 2)
}

// writeCertificate writes a self-signed certificate for 127.0.0.1 and its key.
func writeCertificate(t *testing.T, dir string, from, until time.Time) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "first"}, NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "tls.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	writeFile(t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})))
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// serveWebhooks runs a server of plugins until the end of the test, and returns its URL.
func serveWebhooks(t *testing.T, o policywebhook.Options) string {
	t.Helper()
	s, err := policywebhook.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func(url string) { ready <- url }) }()
	var url string
	select {
	case url = <-ready:
	case err := <-ended:
		t.Fatalf("the server ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the server is not ready after a minute")
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return url
}

// A plugin that cannot be served causes a one-sentence error, and registers nothing.
func TestPluginsThatCannotBeServed(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	for _, tt := range []struct {
		name    string
		options policywebhook.Options
		want    string
	}{
		{"no plugins", policywebhook.Options{}, "--plugins"},
		{"a plugin that there is not", policywebhook.Options{Plugins: []string{"LimitRange"}}, `unknown plugin "LimitRange"`},
		{"a plugin that cannot be a webhook", policywebhook.Options{Plugins: []string{"AlwaysDeny"}}, "cannot serve AlwaysDeny as a webhook"},
		{"a plugin twice", policywebhook.Options{Plugins: []string{"Priority", "Priority"}}, "given twice"},
		{"no configuration where one is needed", policywebhook.Options{Plugins: []string{"EventRateLimit"}}, "it needs a configuration"},
		{"an address that leads nowhere", policywebhook.Options{Plugins: []string{"Priority"}, BindAddress: "0.0.0.0"}, "--service or --url"},
		{"a service and a URL", policywebhook.Options{Plugins: []string{"Priority"}, Service: "a/b", URL: "https://x"}, "exclude each other"},
		{"a URL without TLS", policywebhook.Options{Plugins: []string{"Priority"}, URL: "http://x"}, "must begin with https://"},
		{"a time that the API does not take", policywebhook.Options{Plugins: []string{"Priority"}, Timeout: time.Minute}, "between 1s and 30s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.options.Cluster = s.Admin
			made, err := policywebhook.New(tt.options)
			if err == nil {
				made.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one sentence with %q", err, tt.want)
			}
		})
	}
}
