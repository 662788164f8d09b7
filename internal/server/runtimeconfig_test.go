package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/inside"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

const (
	registered = "/apis/admissionregistration.k8s.io/"
	secrets    = "/api/v1/namespaces/default/secrets"
	configMaps = "/api/v1/namespaces/default/configmaps"
)

// eventually sends a request until it gets a code: registrations are active within about a second.
func eventually(t *testing.T, h *harness.HTTP, code int, path, body string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("POST %s gets %d", path, code), func() error {
		if r := h.Do("POST", path, body); r.Code != code {
			return fmt.Errorf("%d: %.500s", r.Code, r.Raw)
		}
		return nil
	})
}

// serviceOf makes a service with an endpoint. The server's dialer connects to another address.
func serviceOf(h *harness.HTTP, name string) {
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/services", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"ports":[{"port":443}]}}`, name))
	h.Must(http.StatusCreated, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", fmt.Sprintf(
		`{"metadata":{"name":%q,"labels":{"kubernetes.io/service-name":%[1]q}},"addressType":"IPv4","ports":[{"name":"","port":443}],"endpoints":[{"addresses":["10.9.0.1"]}]}`, name))
}

// TestVersionsAreSwitched proves S9.8 and S11.12: a version that is switched off is not served;
// registrations through v1alpha1 are then not active, which is not an error. They are active again
// when the version is switched on.
func TestVersionsAreSwitched(t *testing.T) {
	const trial, secret = `{"metadata":{"name":"trial"}}`, secrets + "?dryRun=All"
	hooks := harness.NewWebhookServer(t, []string{"hook.default.svc"})
	hook := hooks.Hook("/", harness.Allow)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", hooks.Address())
	}
	dir := t.TempDir()
	start := func(config ...string) (*harness.Server, *harness.HTTP) {
		s := inside.Start(t, server.Options{DataDir: dir, RuntimeConfig: config, DialWebhook: dial})
		return s, s.HTTP(t, nil)
	}

	s, h := start("admissionregistration.k8s.io/v1alpha1", "admissionregistration.k8s.io/v1beta1=true")
	serviceOf(h, "hook")
	h.Must(http.StatusCreated, "POST", registered+"v1alpha1/initializerconfigurations", `{"metadata":{"name":"i"},"initializers":[
		{"name":"waits.gatehouse.example.com","rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["secrets"]}]}]}`)
	h.Must(http.StatusCreated, "POST", registered+"v1alpha1/externaladmissionhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"e"},"externalAdmissionHooks":[
		{"name":"hook.gatehouse.example.com","clientConfig":{"service":{"namespace":"default","name":"hook"},"caBundle":%q},
		 "rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`, hook.CABundle()))
	h.Must(http.StatusCreated, "POST", registered+"v1beta1/validatingwebhookconfigurations", `{"metadata":{"name":"v"}}`)
	eventually(t, h, http.StatusAccepted, secret, trial)
	harness.Eventually(t, "the external hook is called", func() error {
		h.Must(http.StatusCreated, "POST", configMaps, `{"metadata":{"generateName":"trial-"}}`)
		if len(hook.Reviews()) == 0 {
			return errors.New("it was not")
		}
		return nil
	})
	hook.Forget()
	s.Stop(t)

	s, h = start("admissionregistration.k8s.io/v1alpha1=false", "admissionregistration.k8s.io/v1beta1=false")
	for _, path := range []string{"v1alpha1", "v1alpha1/initializerconfigurations", "v1beta1", "v1beta1/validatingwebhookconfigurations"} {
		h.Must(http.StatusNotFound, "GET", registered+path, "")
	}
	var versions []string
	list, _ := h.Get("/apis/admissionregistration.k8s.io").At("versions").([]any)
	for _, v := range list {
		versions = append(versions, fmt.Sprint(harness.At(v, "version")))
	}
	if len(versions) != 1 || versions[0] != "v1" {
		t.Errorf("S9.8 discovery has %v, want v1 alone", versions)
	}
	if name := h.Get(registered+"v1/validatingwebhookconfigurations/v").Text("metadata", "name"); name != "v" {
		t.Errorf("S1.2 what was written through v1beta1 is not in v1: %q", name)
	}
	h.Must(http.StatusCreated, "POST", secret, trial)
	h.Must(http.StatusCreated, "POST", configMaps, `{"metadata":{"generateName":"trial-"}}`)
	if len(hook.Reviews()) != 0 {
		t.Errorf("S11.12 the external hook was called though its kind is switched off")
	}
	for name, off := range map[string]any{"initializerconfigurations.i": true, "externaladmissionhookconfigurations.e": true, "validatingwebhookconfigurations.v": nil} {
		if state := h.Get("/apis/gatehouse.dev/v1alpha1/registrationstates/" + name); state.At("replicas", "0", "off") != off {
			t.Errorf("S9.8 off is not %v in %s", off, state.Raw)
		}
	}
	s.Stop(t)

	_, h = start()
	eventually(t, h, http.StatusAccepted, secret, trial)
}

// TestExternalHooksSeeTheProxyClientCertificate proves S12.13: the certificate goes to external
// hooks, and only to hooks without a user in the configuration.
func TestExternalHooksSeeTheProxyClientCertificate(t *testing.T) {
	hooks := harness.NewWebhookServer(t, []string{"external.default.svc", "known.default.svc"})
	hook := hooks.Hook("/", harness.Allow)
	stable := hooks.Hook("/v1", harness.Allow)
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cert, key := hooks.Authority.Pair(t, "apiserver")
	kubeconfig := write("kubeconfig", `{"apiVersion":"v1","kind":"Config","users":[{"name":"known.default.svc","user":{"token":"secret"}}]}`)
	s := inside.Start(t, server.Options{
		ProxyClientCertFile: write("client.crt", string(cert)), ProxyClientKeyFile: write("client.key", string(key)),
		AdmissionConfigFile: write("admission.yaml", fmt.Sprintf(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration","plugins":[
			{"name":"GenericAdmissionWebhook","configuration":{"apiVersion":"apiserver.config.k8s.io/v1","kind":"WebhookAdmissionConfiguration","kubeConfigFile":%q}}]}`, kubeconfig)),
		DialWebhook: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", hooks.Address())
		},
	})
	h := s.HTTP(t, nil)
	external := func(name, resource string) string {
		serviceOf(h, name)
		return fmt.Sprintf(`{"name":"%s.gatehouse.example.com","clientConfig":{"service":{"namespace":"default","name":%[1]q},"caBundle":%q},
			"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":[%q]}]}`, name, hook.CABundle(), resource)
	}
	h.Must(http.StatusCreated, "POST", registered+"v1alpha1/externaladmissionhookconfigurations",
		`{"metadata":{"name":"e"},"externalAdmissionHooks":[`+external("external", "configmaps")+`,`+external("known", "secrets")+`]}`)
	h.Must(http.StatusCreated, "POST", registered+"v1/validatingwebhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"v"},"webhooks":[
		{"name":"v1.gatehouse.example.com","clientConfig":{"url":%q,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"],
		 "rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["serviceaccounts"]}]}]}`, stable.URL(), stable.CABundle()))
	for _, tc := range []struct {
		name, resource string
		hook           *harness.Hook
		client, token  string
	}{
		{"S12.13 an external hook", "configmaps", hook, "apiserver", ""},
		{"S8.14 an external hook that has a user", "secrets", hook, "", "Bearer secret"},
		{"S8.20 a hook of another plugin", "serviceaccounts", stable, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.hook.Forget()
			harness.Eventually(t, "the hook is in force", func() error {
				h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/"+tc.resource, `{"metadata":{"generateName":"trial-"}}`)
				if len(tc.hook.Reviews()) == 0 {
					return fmt.Errorf("it was not called")
				}
				return nil
			})
			request := tc.hook.Last(t).HTTP
			client := ""
			if certs := request.TLS.PeerCertificates; len(certs) > 0 {
				client = certs[0].Subject.CommonName
			}
			if token := request.Header.Get("Authorization"); client != tc.client || token != tc.token {
				t.Errorf("client certificate of %q and authorization %q, want %q and %q", client, token, tc.client, tc.token)
			}
		})
	}
}

// TestMutatingPoliciesInV1beta1 proves S13.3 and S13.4, with D44 and D45: v1beta1 has the kinds of
// MutatingAdmissionPolicy only if --runtime-config names them, and the objects are the same as in
// v1.
func TestMutatingPoliciesInV1beta1(t *testing.T) {
	dir := t.TempDir()
	const policies = "/mutatingadmissionpolicies"
	for _, c := range speed.Some(t, 2, []struct {
		name   string
		config []string
		served bool
	}{
		{"D45: by default", nil, false},
		{"S13.3: with the version", []string{"admissionregistration.k8s.io/v1beta1=true"}, true},
		{"S13.3: with the version, without a value", []string{"admissionregistration.k8s.io/v1beta1"}, true},
		{"D45: with all versions that are off", []string{"api/beta=true"}, true},
	}) {
		t.Run(c.name, func(t *testing.T) {
			s := inside.Start(t, server.Options{DataDir: dir, RuntimeConfig: c.config})
			defer s.Stop(t)
			h := s.HTTP(t, nil)
			for path, served := range map[string]bool{
				"v1" + policies: true, "v1/validatingadmissionpolicies": true,
				"v1beta1" + policies: c.served, "v1beta1" + policies + "bindings": false, "v1beta1/mutatingadmissionpolicybindings": c.served,
				"v1beta1/validatingadmissionpolicies": false, "v1beta1/validatingadmissionpolicybindings": false,
				"v1beta1/mutatingwebhookconfigurations": true, "v1alpha1" + policies: false, "v1alpha1/mutatingadmissionpolicybindings": false,
			} {
				if code := h.Do("GET", registered+path, "").Code; (code == http.StatusOK) != served || (code != http.StatusOK && code != http.StatusNotFound) {
					t.Errorf("%s: %d, want served %t", path, code, served)
				}
			}
			if !c.served {
				return
			}
			kinds := map[string]bool{}
			for _, r := range h.Get(registered + "v1beta1").At("resources").([]any) {
				kinds[fmt.Sprint(harness.At(r, "name"))] = true
			}
			if !kinds["mutatingadmissionpolicies"] || !kinds["mutatingwebhookconfigurations"] {
				t.Errorf("discovery of v1beta1: %v", kinds)
			}
			created := h.Must(http.StatusCreated, "POST", registered+"v1beta1"+policies, `{"metadata":{"name":"p"},"spec":{"reinvocationPolicy":"Never",
				"matchConstraints":{"resourceRules":[{"apiGroups":["never.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nothings"]}]},
				"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]}}`)
			const deprecated = "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicy is deprecated in v1.37+, unavailable in v1.40+; use admissionregistration.k8s.io/v1 MutatingAdmissionPolicy"
			if w := created.Header.Values("Warning"); !slices.ContainsFunc(w, func(w string) bool { return strings.Contains(w, deprecated) }) {
				t.Errorf("warnings %q, want %q", w, deprecated)
			}
			stable := h.Get(registered + "v1" + policies + "/p")
			if created.Text("apiVersion") != "admissionregistration.k8s.io/v1beta1" || stable.Text("apiVersion") != "admissionregistration.k8s.io/v1" || created.Text("metadata", "uid") != stable.Text("metadata", "uid") {
				t.Errorf("S13.4: %s\n%s", created.Raw, stable.Raw)
			}
			h.Must(http.StatusOK, "DELETE", registered+"v1"+policies+"/p", "")
		})
	}
}
