package operations

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

const (
	registrations = "/apis/admissionregistration.k8s.io/v1/"
	mutating      = "MutatingWebhookConfiguration"
	validating    = "ValidatingWebhookConfiguration"
)

// register registers a webhook with failurePolicy Fail for all writes, and waits until it is active.
func register(t *testing.T, s *harness.Server, kind, name string, clientConfig map[string]any) {
	t.Helper()
	plural := strings.ToLower(kind) + "s"
	data, err := json.Marshal(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": name},
		"webhooks": []any{map[string]any{
			"name": name + ".example.com", "clientConfig": clientConfig, "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
			"rules": []any{map[string]any{"operations": []any{"*"}, "apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "resources": []any{"*/*"}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", registrations+plural, string(data))
	harness.Eventually(t, name+" is active", func() error {
		if state := h.Do("GET", "/apis/gatehouse.dev/v1alpha1/registrationstates/"+plural+"."+name, ""); state.Code != http.StatusOK || state.At("inForce") != true {
			return fmt.Errorf("%d %s", state.Code, state.Raw)
		}
		return nil
	})
}

func down(t *testing.T) map[string]any {
	return map[string]any{"url": "https://" + harness.Refused(t) + "/"}
}

// create tries to create an object and fails the test unless the response has the given code.
func create(t *testing.T, s *harness.Server, code int, path, object string) {
	t.Helper()
	s.HTTP(t, nil).Must(code, "POST", path, object)
}

const (
	configMaps = "/api/v1/namespaces/%s/configmaps"
	pods       = "/api/v1/namespaces/%s/pods"
	namespaces = "/api/v1/namespaces"
)

func named(name string) string { return fmt.Sprintf(`{"metadata":{"name":%q}}`, name) }

func pod(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"name":"main","image":"example.com/main"}]}}`, name)
}

// Two webhooks for all writes are down, so that neither pods nor namespaces can be created. The commands
// remove one of them and set the other to Ignore; each recovery takes effect when its commands end.
func TestRecoverFromABadWebhook(t *testing.T) {
	t.Parallel()
	const section = "Recover from a bad webhook"
	s := harness.Sole(t)
	a := harness.NewAdministrator(t).Of(s)
	register(t, s, mutating, "bad", down(t))
	register(t, s, validating, "bad", down(t))
	create(t, s, http.StatusInternalServerError, fmt.Sprintf(pods, "default"), pod("a"))
	create(t, s, http.StatusInternalServerError, namespaces, named("a"))

	harness.Eventually(t, "the state says which webhook cannot be reached", func() error {
		create(t, s, http.StatusInternalServerError, namespaces, named("a"))
		if state := string(s.HTTP(t, nil).Get("/apis/gatehouse.dev/v1alpha1/registrationstates").Raw); !strings.Contains(state, "connection refused") {
			return fmt.Errorf("%s", state)
		}
		return nil
	})
	harness.Contains(t, "the output of the page's command", a.Follow(t, section, "get registrationstates"),
		"validatingwebhookconfiguration.admissionregistration.k8s.io/bad", "bad.example.com at 127.0.0.1:", "connection refused")
	a.Follow(t, section, "--deleted")
	if kept, err := os.ReadFile(filepath.Join(a.Dir, "bad.yaml")); err != nil || !strings.Contains(string(kept), "bad.example.com") {
		t.Errorf("what was kept: %v %s", err, kept)
	}
	create(t, s, http.StatusInternalServerError, namespaces, named("a"))
	a.Follow(t, section, `"Ignore"`)
	create(t, s, http.StatusCreated, namespaces, named("a"))
	create(t, s, http.StatusCreated, fmt.Sprintf(pods, "a"), pod("a"))
}

// A webhook for all writes that is down does not prevent writes to its own namespace or to the namespaces of
// the cluster; other namespaces cannot gain the exemption.
func TestExemptNamespaces(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	a := harness.NewAdministrator(t).Of(s)
	create(t, s, http.StatusCreated, namespaces, named("webhooks"))
	s.Account(t, "webhooks")
	register(t, s, validating, "policy", down(t))
	create(t, s, http.StatusInternalServerError, fmt.Sprintf(pods, "webhooks"), pod("hook"))

	a.Follow(t, "Exempt namespaces", "kubernetes.io/metadata.name")
	create(t, s, http.StatusCreated, fmt.Sprintf(pods, "webhooks"), pod("hook"))
	create(t, s, http.StatusCreated, fmt.Sprintf(configMaps, "kube-system"), named("a"))
	create(t, s, http.StatusInternalServerError, fmt.Sprintf(pods, "default"), pod("a"))
	create(t, s, http.StatusInternalServerError, namespaces, `{"metadata":{"name":"a","labels":{"kubernetes.io/metadata.name":"webhooks"}}}`)
	h := s.HTTP(t, nil)
	h.Do("PATCH", namespaces+"/default", `{"metadata":{"labels":{"kubernetes.io/metadata.name":"webhooks"}}}`, "Content-Type", "application/merge-patch+json")
	if label := h.Get(namespaces+"/default").Text("metadata", "labels", "kubernetes.io/metadata.name"); label != "default" {
		t.Errorf("default has become %s", label)
	}
}

// The server starts and becomes ready with every webhook down, even after a kill.
func TestStartsWithEveryWebhookDown(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	register(t, s, mutating, "policy", down(t))
	s.Kill(t)
	s.Restart(t)
	h := s.HTTP(t, nil)
	h.Get("/readyz")
	h.Get(namespaces)
	create(t, s, http.StatusInternalServerError, namespaces, named("a"))
}

// The certificate of a webhook and its CA are replaced without a rejected request. In the end only the new CA
// is trusted.
func TestRotateTheCertificateOfAWebhook(t *testing.T) {
	t.Parallel()
	const section = "Certificates"
	s := harness.Sole(t)
	a := harness.NewAdministrator(t).Of(s)
	old, next := harness.NewAuthority(t, "old"), harness.NewAuthority(t, "new")
	a.Write(t, "old-ca.crt", old.Bundle)
	a.Write(t, "new-ca.crt", next.Bundle)
	var serving atomic.Pointer[tls.Config]
	use := func(authority *harness.Authority) {
		serving.Store(&tls.Config{Certificates: []tls.Certificate{authority.Serving(t, "127.0.0.1")}})
	}
	use(old)
	hooks := harness.NewWebhookServer(t, nil, func(s *httptest.Server) {
		s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return serving.Load(), nil }
		// Every call opens a new connection.
		s.Config.SetKeepAlivesEnabled(false)
	})
	hook := hooks.Hook("/", harness.Allow)
	register(t, s, validating, "policy", map[string]any{"url": hook.URL(), "caBundle": old.Bundle})

	in := fmt.Sprintf(configMaps, "default") + "?dryRun=All"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	writing := make(chan int, 1)
	go func() {
		written, h := 0, s.HTTP(t, nil)
		for ; ctx.Err() == nil; harness.Breathe(ctx) {
			written++
			if code, err := h.Try(t.Context(), "POST", in, named("a")); (err != nil || code != http.StatusCreated) && ctx.Err() == nil {
				t.Errorf("write %d: %d, %v", written, code, err)
			}
		}
		writing <- written
	}()
	a.Follow(t, section, "both-ca.crt")
	use(next)
	asked := len(hook.Reviews())
	harness.Eventually(t, "calls with the new certificate", func() error {
		if n := len(hook.Reviews()) - asked; n < 10 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	a.Follow(t, section, "< new-ca.crt")
	stop()
	if written := <-writing; written < 10 {
		t.Errorf("%d writes", written)
	}
	use(old)
	create(t, s, http.StatusInternalServerError, in, named("a"))
}

// A replaced serving certificate is used without a restart.
func TestRotateTheServingCertificate(t *testing.T) {
	t.Parallel()
	a, authority := harness.NewAdministrator(t), harness.NewAuthority(t, "serving")
	replace := func() {
		cert, key := authority.Pair(t, "127.0.0.1")
		a.Write(t, "tls.key", key)
		a.Write(t, "tls.crt", cert)
	}
	replace()
	s := harness.Start(t, "--tls-cert-file", filepath.Join(a.Dir, "tls.crt"), "--tls-private-key-file", filepath.Join(a.Dir, "tls.key"))
	serial := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{RootCAs: authority.Pool()})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	replace()
	harness.Eventually(t, "the new certificate", func() error {
		if serial() == first {
			return fmt.Errorf("serial number %s", first)
		}
		return nil
	})
}
