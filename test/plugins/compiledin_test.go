package plugins

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/engine"
)

const podIn = `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"p-"%s},"spec":{"containers":[{"name":"c","image":"i"%s}]%s}}`

// podOf returns a pod with additional fields in its metadata, its container and its spec.
func podOf(metadata, container, spec string) string {
	return fmt.Sprintf(podIn, metadata, container, spec)
}

// S9.16: the built-in admission plugins validate and mutate the requests of clients.
func TestCompiledInPlugins(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--enable-admission-plugins", "AlwaysPullImages", "--controllers", "namespace-controller")
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	in := func(resource string) string { return "/api/v1/namespaces/" + ns + "/" + resource }
	h.Must(http.StatusCreated, "POST", in("limitranges"), `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","default":{"cpu":"2"},"defaultRequest":{"cpu":"1"},"max":{"cpu":"4"}}]}}`)
	h.Must(http.StatusCreated, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", `{"metadata":{"name":"high"},"value":1000}`)
	h.Must(http.StatusCreated, "POST", "/apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"fast","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"x"}`)
	h.Must(http.StatusCreated, "POST", in("resourcequotas"), `{"metadata":{"name":"q"},"spec":{"hard":{"count/secrets":"1"}}}`)
	// No controller maintains this quota: admission enforces its status.
	h.Must(http.StatusOK, "PATCH", in("resourcequotas/q/status"), `{"status":{"hard":{"count/secrets":"1"},"used":{"count/secrets":"0"}}}`, "Content-Type", mergePatch)
	h.Must(http.StatusOK, "DELETE", in("serviceaccounts/default"), "")
	harness.Eventually(t, "a pod without a service account is refused", func() error {
		if r := h.Do("POST", in("pods"), podOf("", "", "")); r.Code != http.StatusForbidden || !strings.Contains(string(r.Raw), `serviceaccount \"default\" not found`) {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	s.Account(t, ns)
	restricted := s.Namespace(t)
	h.Must(http.StatusOK, "PATCH", "/api/v1/namespaces/"+restricted, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/warn":"restricted"}}}`, "Content-Type", mergePatch)

	for _, tt := range []struct {
		name, path, body string
		code             int
		// want is part of the response body, warning part of a warning.
		want, warning string
	}{
		{"ServiceAccount names the account", in("pods"), podOf("", "", ""), 201, `"serviceAccountName":"default"`, ""},
		{"ServiceAccount mounts its token", in("pods"), podOf("", "", ""), 201, `"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"`, ""},
		{"LimitRanger sets requests", in("pods"), podOf("", "", ""), 201, `"requests":{"cpu":"1"}`, ""},
		{"LimitRanger refuses too much", in("pods"), podOf("", `,"resources":{"limits":{"cpu":"5"}}`, ""), 403, `maximum cpu usage per Container is 4, but limit is 5`, ""},
		{"Priority resolves the class", in("pods"), podOf("", "", `,"priorityClassName":"high"`), 201, `"priority":1000`, ""},
		{"Priority refuses a class that there is not", in("pods"), podOf("", "", `,"priorityClassName":"low"`), 403, `no PriorityClass with name low was found`, ""},
		{"DefaultTolerationSeconds tolerates", in("pods"), podOf("", "", ""), 201, `"key":"node.kubernetes.io/unreachable"`, ""},
		{"RuntimeClass refuses a class that there is not", in("pods"), podOf("", "", `,"runtimeClassName":"none"`), 403, `RuntimeClass \"none\" not found`, ""},
		{"AlwaysPullImages, which was switched on", in("pods"), podOf("", `,"imagePullPolicy":"Never"`, ""), 201, `"imagePullPolicy":"Always"`, ""},
		{"PodSecurity refuses", "/api/v1/namespaces/" + restricted + "/pods", podOf("", "", `,"hostNetwork":true`), 403, `violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)`, ""},
		{"PodSecurity warns", "/api/v1/namespaces/" + restricted + "/pods", podOf("", "", ""), 201, ``, `would violate PodSecurity "restricted:latest"`},
		{"DefaultStorageClass and StorageObjectInUseProtection", in("persistentvolumeclaims"), `{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, 201, `"storageClassName":"fast"`, ""},
		{"TaintNodesByCondition", "/api/v1/nodes", `{"metadata":{"name":"n"}}`, 201, `"key":"node.kubernetes.io/not-ready"`, ""},
		{"CertificateSubjectRestriction refuses certificates of system:masters", "/apis/certificates.k8s.io/v1/certificatesigningrequests", `{"metadata":{"name":"c"},"spec":{"request":"` + mastersRequest(t) + `","signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"]}}`, 403, `use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`, ""},
		{"ResourceQuota lets pass what fits", in("secrets"), `{"metadata":{"name":"a"}}`, 201, ``, ""},
		{"ResourceQuota refuses what does not", in("secrets"), `{"metadata":{"name":"b"}}`, 403, `exceeded quota: q, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Plugins may observe new objects with a delay.
			harness.Eventually(t, "the plugin acts", func() error {
				r := h.Do("POST", tt.path, tt.body)
				if r.Code != tt.code || !strings.Contains(string(r.Raw), tt.want) {
					return fmt.Errorf("%d %s, want %d with %s", r.Code, r.Raw, tt.code, tt.want)
				}
				if warnings := strings.Join(r.Header.Values("Warning"), "; "); !strings.Contains(strings.ReplaceAll(warnings, `\"`, `"`), tt.warning) {
					return fmt.Errorf("warnings %s, want %s", warnings, tt.warning)
				}
				return nil
			})
		})
	}

	t.Run("S9.18 a trace says what each changed", func(t *testing.T) {
		changed := map[string][]string{}
		found := traceOf(t, h, h.Must(http.StatusCreated, "POST", in("pods"), podOf("", "", "")))
		for step := range engine.RecordOf(t, found).Each() {
			for _, p := range step.Patch {
				changed[step.Plugin] = append(changed[step.Plugin], p.Path)
			}
		}
		for plugin, path := range map[string]string{
			"LimitRanger": "/spec/containers/0/resources/limits", "Priority": "/spec/priority", "ServiceAccount": "/spec/serviceAccountName",
			"DefaultTolerationSeconds": "/spec/tolerations", "AlwaysPullImages": "",
		} {
			if !slices.Contains(changed[plugin], path) && path != "" {
				t.Errorf("%s changed %q, and %s is not among it", plugin, changed[plugin], path)
			}
		}
	})

	t.Run("S9.17 an explanation says what each would change, and charges no quota", func(t *testing.T) {
		explain := func(body string, headers ...string) map[string]string {
			found := map[string]string{}
			r := h.Must(http.StatusCreated, "POST", "/apis/gatehouse.dev/v1alpha1/admissionexplanations", body, headers...)
			for step := range engine.PlanOf(t, r.Raw).Each() {
				found[step.Plugin] += fmt.Sprintf("%s %s%v", step.Effect, step.Patch, step.Reason)
			}
			return found
		}
		about := func(resource, object, more string) string {
			return fmt.Sprintf(`{"spec":{"resource":{"version":"v1","resource":%q},"namespace":%q,"object":%s%s}}`, resource, ns, object, more)
		}
		found := explain(about("pods", podOf("", "", ""), ""))
		if !strings.Contains(found["Priority"], "/spec/priority") || !strings.Contains(found["ServiceAccount"], "serviceAccountName") {
			t.Errorf("Priority: %q, ServiceAccount: %q", found["Priority"], found["ServiceAccount"])
		}
		if found["DefaultStorageClass"] != "" || found["TaintNodesByCondition"] != "" {
			t.Errorf("steps of plugins that are about other requests: %q", found)
		}
		found = explain(about("secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}`, ""))
		if !strings.Contains(found["ResourceQuota"], "reject") || !strings.Contains(found["ResourceQuota"], "exceeded quota: q") {
			t.Errorf("ResourceQuota: %q", found["ResourceQuota"])
		}
		h.Must(http.StatusOK, "DELETE", in("secrets/a"), "")
		h.Must(http.StatusOK, "PATCH", in("resourcequotas/q/status"), `{"status":{"used":{"count/secrets":"0"}}}`, "Content-Type", mergePatch)
		harness.Eventually(t, "the quota is free again", func() error {
			if got := explain(about("secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}`, ""))["ResourceQuota"]; !strings.HasPrefix(got, "run") {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
		if used := h.Must(http.StatusOK, "GET", in("resourcequotas/q"), "").Text("status", "used", "count/secrets"); used != "0" {
			t.Errorf("the explanation charged quota: used %s", used)
		}
	})

	t.Run("metadata.initializers stays through all of them", func(t *testing.T) {
		// The pod waits for an initializer that never runs.
		created := h.Must(http.StatusAccepted, "POST", in("pods")+"?includeUninitialized=true", podOf(`,"initializers":{"pending":[{"name":"later.example.com"}]}`, "", ""))
		if got := fmt.Sprint(created.At("metadata", "initializers")); got != "map[pending:[map[name:later.example.com]]]" {
			t.Errorf("metadata.initializers is %s", got)
		}
		if created.At("spec", "priority") == nil {
			t.Error("Priority did not see the object")
		}
		if strings.Contains(string(created.Raw), "gatehouse.dev/metadata.initializers") {
			t.Errorf("the reserved annotation shows: %s", created.Raw)
		}
	})
}

// mastersRequest returns a certificate request for the group system:masters, in base64.
func mastersRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "u", Organization: []string{"system:masters"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
}

// S9.12, S9.16: an invalid setting stops the start with a one-sentence error.
func TestPluginsThatCannotBeMeantStopTheStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		flags         []string
		configuration string
		want          string
	}{
		{"a plugin that there is not", []string{"--enable-admission-plugins", "LimitRange"}, "", `--enable-admission-plugins: unknown plugin "LimitRange"`},
		{"a plugin that needs a configuration and has none", []string{"--enable-admission-plugins", "EventRateLimit"}, "", `admission plugin EventRateLimit: it needs a configuration`},
		{"a configuration of a plugin that is off", []string{"--disable-admission-plugins", "PodSecurity"},
			`[{name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration}}]`, `plugin "PodSecurity" is configured and does not run`},
		{"a configuration of a plugin that there is not", nil, `[{name: PodSecurty, configuration: {}}]`, `there is no plugin of that name`},
		{"a configuration that the plugin cannot read", nil,
			`[{name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: strong}}}]`, `admission plugin PodSecurity: `},
		{"a file that is not there", nil, `[{name: PodSecurity, path: missing.yaml}]`, `missing.yaml`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			flags := tt.flags
			if tt.configuration != "" {
				flags = append(flags, "--admission-control-config-file", writeFile(t, filepath.Join(t.TempDir(), "admission.yaml"),
					"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: "+tt.configuration))
			}
			if text := harness.Refuses(t, flags...); !strings.Contains(text, tt.want) || strings.Contains(text, "\n") {
				t.Errorf("refused with %q, want one sentence with %q", text, tt.want)
			}
		})
	}
}

// S9.7, S9.16: the flags of kube-apiserver accept every name of its plugin list.
func TestEveryPluginOfKubeAPIServerCanBeSwitched(t *testing.T) {
	t.Parallel()
	const all = "NamespaceAutoProvision,NamespaceExists,LimitPodHardAntiAffinityTopology,NodeRestriction,AlwaysPullImages," +
		"PodNodeSelector,PodTolerationRestriction,ExtendedResourceToleration,OwnerReferencesPermissionEnforcement,DenyServiceExternalIPs"
	s := harness.Start(t, "--enable-admission-plugins", all)
	h := s.HTTP(t, nil)
	harness.Eventually(t, "NamespaceAutoProvision creates the namespace", func() error {
		if r := h.Do("POST", "/api/v1/namespaces/made-on-the-way/configmaps", configMap("a")); r.Code != http.StatusCreated {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	h.Must(http.StatusOK, "GET", "/api/v1/namespaces/made-on-the-way", "")
	refused := h.Must(http.StatusForbidden, "POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}],"externalIPs":["1.2.3.4"]}}`)
	if !strings.Contains(string(refused.Raw), "Use of external IPs is denied by admission control") {
		t.Errorf("refused with %s", refused.Raw)
	}
}
