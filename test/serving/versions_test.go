package serving

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/engine"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S26.1: a version that cannot be emulated causes a one-sentence error that lists the possible versions.
func TestVersionsThatCannotBeEmulated(t *testing.T) {
	t.Parallel()
	const possible = "; possible are 1.34, 1.35, 1.36 and 1.37"
	for _, tt := range speed.Some(t, 3, []struct{ flags, says string }{
		{"--emulated-version=1.30", `gatehouse: --emulated-version "1.30": emulation version 1.30 is not between [1.34, 1.37.0]` + possible},
		{"--emulated-version=2.0", `gatehouse: --emulated-version "2.0": emulation version 2.0 is not between [1.34, 1.37.0]` + possible},
		{"--emulated-version=1.35.4", `gatehouse: --emulated-version "1.35.4": patch version not allowed, got: kube=1.35.4` + possible},
		{"--emulated-version=1.35 --min-compatibility-version=1.36", `gatehouse: --min-compatibility-version "1.36": minCompatibilityVersion version 1.36 is not between [1.34, 1.35]` + possible},
		{"--emulation-forward-compatible", "gatehouse: --emulation-forward-compatible needs an --emulated-version that is older than Kubernetes 1.37.2"},
		{"--emulated-version=1.37 --runtime-config-emulation-forward-compatible", "gatehouse: --runtime-config-emulation-forward-compatible needs an --emulated-version that is older than Kubernetes 1.37.2"},
		// S26.5: a feature gate that the release does not have.
		{"--emulated-version=1.34 --feature-gates=NodeDeclaredFeatures=true", "gatehouse: --feature-gates: cannot set feature gate NodeDeclaredFeatures to true, feature is PreAlpha at emulated version 1.34, min compatibility version 1.33"},
	}) {
		if got := harness.Refuses(t, strings.Fields(tt.flags)...); got != tt.says {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.flags, got, tt.says)
		}
	}
}

// resourcesIn returns the resources of a version; nil if the version is not served.
func resourcesIn(h *harness.HTTP, path string) []string {
	r := h.Do("GET", path, "")
	if r.Code != http.StatusOK {
		return nil
	}
	var list []string
	resources, _ := r.At("resources").([]any)
	for _, one := range resources {
		list = append(list, one.(map[string]any)["name"].(string))
	}
	return list
}

const (
	apiAdmission = "/apis/admissionregistration.k8s.io/v1"
	// hostnamed is a pod with a field that is enabled by default since Kubernetes 1.35.
	hostnamed = `{"metadata":{"name":"hostnamed"},"spec":{"hostnameOverride":"web.example.com","containers":[{"name":"c","image":"i"}]}}`
)

// Flags of two servers that emulate 1.34. One accepts later fields with a warning; the other rejects them and has a
// later version of an API.
var (
	lenient   = []string{"--emulated-version=1.34"}
	rejecting = []string{"--emulated-version=1.34", "--later-fields=reject", "--feature-gates=StorageVersionMigrator=true",
		"--runtime-config=storagemigration.k8s.io/v1=true", "--runtime-config-emulation-forward-compatible"}
)

// A server that emulates 1.34 reports that version, serves its APIs, drops its unknown fields and uses its
// admission rules: S26.2, S26.3, S26.4, S26.5, S26.9.
func TestAnEmulatedRelease(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, lenient...)
	h := s.HTTP(t, nil)

	t.Run("S26.2 /version", func(t *testing.T) {
		version := h.Must(http.StatusOK, "GET", "/version", "")
		for field, value := range map[string]string{
			"major": "1", "minor": "37", "gitVersion": "v1.37.2", "emulationMajor": "1", "emulationMinor": "34", "minCompatibilityMajor": "1", "minCompatibilityMinor": "33",
		} {
			if got := version.Text(field); got != value {
				t.Errorf("%s is %q, want %q", field, got, value)
			}
		}
	})
	t.Run("S26.3 kinds that came later are not served", func(t *testing.T) {
		for _, name := range resourcesIn(h, apiAdmission) {
			if strings.HasPrefix(name, "mutatingadmissionpolic") {
				t.Errorf("%s is served", name)
			}
		}
		h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", apiAdmission+"/mutatingadmissionpolicies", "")
		if resourcesIn(h, "/apis/storagemigration.k8s.io/v1") != nil {
			t.Error("storagemigration.k8s.io/v1 is served")
		}
		if paths := h.Must(http.StatusOK, "GET", "/openapi/v3", "").At("paths").(map[string]any); paths["apis/storagemigration.k8s.io/v1"] != nil {
			t.Error("storagemigration.k8s.io/v1 is documented")
		}
	})
	ns := s.Namespace(t)
	t.Run("S26.5 fields that came later are dropped", func(t *testing.T) {
		made := h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods", hostnamed)
		if got := made.At("spec", "hostnameOverride"); got != nil {
			t.Errorf("spec.hostnameOverride is %v", got)
		}
	})
	t.Run("S26.4 webhooks judge reviews", func(t *testing.T) {
		hook := harness.NewWebhookServer(t, nil).Hook("/reviews", harness.Allow)
		harness.Register(t, s, "v1", harness.Validating, map[string]any{
			"name": "reviews.example.com", "clientConfig": hook.ClientConfig(), "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
			"rules": []any{map[string]any{"apiGroups": []any{"authentication.k8s.io"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"tokenreviews"}}},
		})
		h.Must(http.StatusCreated, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"none"}}`)
		if got := len(hook.Reviews()); got != 1 {
			t.Errorf("the webhook was asked %d times", got)
		}
	})
	t.Run("S26.4 nothing applies to resources of gatehouse.dev", func(t *testing.T) {
		hook := harness.NewWebhookServer(t, nil).Hook("/own", harness.Deny(nil))
		for _, kind := range []string{harness.Mutating, harness.Validating} {
			harness.Register(t, s, "v1", kind, map[string]any{
				"name": "own.example.com", "clientConfig": hook.ClientConfig(), "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
				"rules": []any{map[string]any{"apiGroups": []any{"gatehouse.dev"}, "apiVersions": []any{"*"}, "operations": []any{"*"}, "resources": []any{"*"}}},
			})
		}
		engine.VirtualWrites(t, h)
		if got := len(hook.Reviews()); got != 0 {
			t.Errorf("the webhook was asked %d times", got)
		}
	})
	t.Run("S26.7 functions that came with the release are for the next one", func(t *testing.T) {
		for _, function := range []string{"[2, 1].sort() == [1, 2]", "[1, 2].slice(0, 1) == [1]", "[[1]].flatten() == [1]", "[1, 1].distinct() == [1]", "[1, 2].reverse() == [2, 1]", "[1].sortBy(i, i) == [1]", "lists.range(1) == [0]"} {
			h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", apiAdmission+"/validatingadmissionpolicies",
				`{"metadata":{"name":"lists"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["leases"]}]},`+
					`"validations":[{"expression":"`+function+`"}]}}`)
			h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", apiAdmission+"/validatingwebhookconfigurations",
				`{"metadata":{"name":"lists"},"webhooks":[{"name":"lists.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"sideEffects":"None","admissionReviewVersions":["v1"],`+
					`"matchConditions":[{"name":"c","expression":"`+function+`"}]}]}`)
		}
	})
	t.Run("S26.9 names of manifests are not reserved yet", func(t *testing.T) {
		made := h.Must(http.StatusCreated, "POST", apiAdmission+"/validatingwebhookconfigurations", `{"metadata":{"name":"a.static.k8s.io"}}`)
		if warnings := made.Header.Values("Warning"); len(warnings) != 1 || !strings.Contains(warnings[0], "reserved for static") {
			t.Errorf("warnings: %q", warnings)
		}
	})
}

// S26.13: a field that the release does not have is accepted with a warning, or is unknown, as on a server of
// the release.
func TestFieldsThatCameLater(t *testing.T) {
	t.Parallel()
	const (
		later   = `"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i","livenessProbe":{"httpGet":{"port":80,"protocol":"H2C"}}}]}}}`
		path    = "spec.template.spec.containers[0].livenessProbe.httpGet.protocol"
		unknown = `unknown field "` + path + `"`
	)
	deployment := func(name, probe string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"` + name + `"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
			`"spec":{"containers":[{"name":"c","image":"i","livenessProbe":{"httpGet":{"port":80` + probe + `}}}]}}}}`
	}
	const probe = `,"protocol":"H2C"`
	kept := func(r *harness.Response) bool {
		return r.At("spec", "template", "spec", "containers", "0", "livenessProbe", "httpGet", "protocol") != nil
	}
	release, strict, warning := "1.34", rejecting, lenient
	if speed.IsLong() {
		release, strict, warning = "1.36", []string{"--emulated-version=1.36", "--later-fields=reject"}, []string{"--emulated-version=1.36"}
	}
	rejects := harness.Sole(t, strict...)
	t.Run("reject", func(t *testing.T) {
		h, ns := rejects.HTTP(t, nil), rejects.Namespace(t)
		deployments := "/apis/apps/v1/namespaces/" + ns + "/deployments"
		h.Must(http.StatusCreated, "POST", deployments, deployment("d", ""))
		for _, tt := range []struct {
			name, method, path, body, form string
			code                           int
			says                           string
		}{
			{"create", "POST", "", deployment("new", probe), "application/json", 400, `Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: ` + unknown},
			{"update", "PUT", "/d", deployment("d", probe), "application/json", 400, "strict decoding error: " + unknown},
			{"YAML", "PUT", "/d", deployment("d", probe), "application/yaml", 400, "strict decoding error: " + unknown},
			{"merge patch", "PATCH", "/d", "{" + later + "}", mergePatch, 422, unknown},
			{"strategic merge patch", "PATCH", "/d", "{" + later + "}", "application/strategic-merge-patch+json", 422, unknown},
			{"JSON patch", "PATCH", "/d", `[{"op":"add","path":"/spec/template/spec/containers/0/livenessProbe/httpGet/protocol","value":"H2C"}]`, "application/json-patch+json", 422, unknown},
			{"apply", "PATCH", "/d", deployment("d", probe), "application/apply-patch+yaml", 400, path + ": field not declared in schema"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				query := "?fieldManager=m"
				if tt.name == "apply" {
					query = "?force=true&fieldManager=m"
				}
				r := h.Do(tt.method, deployments+tt.path+query+"&fieldValidation=Strict", tt.body, "Content-Type", tt.form)
				if r.Code != tt.code || !strings.Contains(r.Text("message"), tt.says) {
					t.Errorf("strict: %d %s, want %d %s", r.Code, r.Text("message"), tt.code, tt.says)
				}
				if tt.name == "apply" {
					return
				}
				for directive, warns := range map[string]int{"Warn": 1, "Ignore": 0} {
					r := h.Do(tt.method, deployments+tt.path+query+"&dryRun=All&fieldValidation="+directive, tt.body, "Content-Type", tt.form)
					if warnings := r.Header.Values("Warning"); r.Code >= 300 || kept(r) || len(warnings) != warns || warns > 0 && !strings.Contains(warnings[0], strings.ReplaceAll(unknown, `"`, `\"`)) {
						t.Errorf("%s: %d, the field is kept: %t, warnings %q: %.300s", directive, r.Code, kept(r), warnings, r.Raw)
					}
				}
			})
		}
	})
	t.Run("reject lists, and what is in them", func(t *testing.T) {
		h, ns := rejects.HTTP(t, nil), rejects.Namespace(t)
		const (
			responders = `"evictionResponders":[{"name":"example.com/a"},{"name":"example.com/b"}]`
			mounts     = `"volumeMounts":[{"name":"v","mountPath":"/a"},{"name":"v","mountPath":"/b","bindMountOptions":["noexec"]}]`
			volumes    = `"volumes":[{"name":"v","emptyDir":{}},{"name":"p","projected":{"sources":[{"configMap":{"name":"c","items":[{"key":"k","path":"p","user":7}]}}]}}]`
		)
		for _, tt := range []struct {
			name, spec string
			unknown    []string
		}{
			{"a list", responders + `,"containers":[{"name":"c","image":"i"}]`, []string{"spec.evictionResponders"}},
			{"a list in elements of lists", `"volumes":[{"name":"v","emptyDir":{}}],"containers":[{"name":"c","image":"i"},{"name":"d","image":"i",` + mounts + `}]`, []string{"spec.containers[1].volumeMounts[1].bindMountOptions"}},
			{"of init containers", `"volumes":[{"name":"v","emptyDir":{}}],"initContainers":[{"name":"d","image":"i",` + mounts + `}],"containers":[{"name":"c","image":"i"}]`, []string{"spec.initContainers[0].volumeMounts[1].bindMountOptions"}},
			{"five levels down", volumes + `,"containers":[{"name":"c","image":"i"}]`, []string{"spec.volumes[1].projected.sources[0].configMap.items[0].user"}},
			{"all of them", responders + "," + volumes + `,"containers":[{"name":"d","image":"i",` + mounts + `}]`, []string{"spec.evictionResponders", "spec.containers[0].volumeMounts[1].bindMountOptions", "spec.volumes[1].projected.sources[0].configMap.items[0].user"}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				pod, pods := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{`+tt.spec+`}}`, "/api/v1/namespaces/"+ns+"/pods?dryRun=All&fieldValidation="
				r := h.Do("POST", pods+"Strict", pod)
				for _, path := range tt.unknown {
					if r.Code != http.StatusBadRequest || !strings.Contains(r.Text("message"), `unknown field "`+path+`"`) {
						t.Errorf("%d %s, want that %s is unknown", r.Code, r.Text("message"), path)
					}
				}
				if n := strings.Count(r.Text("message"), "unknown field"); n != len(tt.unknown) {
					t.Errorf("%d fields are unknown: %s", n, r.Text("message"))
				}
				r = h.Do("POST", pods+"Ignore", pod)
				for _, path := range tt.unknown {
					if name := path[strings.LastIndexByte(path, '.')+1:]; r.Code != http.StatusCreated || strings.Contains(string(r.Raw), `"`+name+`"`) {
						t.Errorf("%d, and %s is kept: %.600s", r.Code, name, r.Raw)
					}
				}
			})
		}
	})
	t.Run("warn", func(t *testing.T) {
		warns := harness.Sole(t, warning...)
		h, ns := warns.HTTP(t, nil), warns.Namespace(t)
		r := h.Do("POST", "/apis/apps/v1/namespaces/"+ns+"/deployments?fieldValidation=Strict", deployment("d", probe))
		if warnings := r.Header.Values("Warning"); r.Code != http.StatusCreated || len(warnings) != 1 || !strings.Contains(warnings[0], "Kubernetes "+release+" does not have the field "+path) {
			t.Errorf("%d, warnings %q: %.300s", r.Code, warnings, r.Raw)
		}
	})
	if got := harness.Refuses(t, "--later-fields=drop"); !strings.Contains(got, "is not one of warn, reject, keep") {
		t.Errorf("got %s", got)
	}
}

// S26.15: with --later-fields reject, warnings and documents match the release.
func TestWhatAReleaseSays(t *testing.T) {
	t.Parallel()
	const (
		service = `{"metadata":{"generateName":"s"},"spec":{"ports":[{"port":80}],"externalIPs":["012.3.4.5"]}}`
		hooks   = `{"metadata":{"name":"a.static.k8s.io"},"webhooks":[{"name":"a.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}],"objectSelector":{"matchLabels":{"a":"b"}}}]}`
		crd     = `{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	)
	type row struct {
		name  string
		flags []string
		// address occurs in a warning; own reports whether fields that only Gatehouse has are present.
		address string
		own     bool
	}
	const odd = "will be considered invalid in a future Kubernetes release: use "
	rows := []row{{"1.34", rejecting, odd, false}, {"1.34 with warnings", lenient, "is invalid: use ", true}}
	if speed.IsLong() {
		rows = append(rows, row{"1.35", []string{"--emulated-version=1.35", "--later-fields=reject"}, odd, false})
	}
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			s := harness.Sole(t, tt.flags...)
			h, ns := s.HTTP(t, nil), s.Namespace(t)
			made := h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/services?dryRun=All", service)
			if warnings := strings.Join(made.Header.Values("Warning"), " "); !strings.Contains(warnings, tt.address) {
				t.Errorf("an odd address has the warnings %q", warnings)
			}
			made = h.Must(http.StatusCreated, "POST", apiAdmission+"/validatingwebhookconfigurations", hooks)
			if warnings := made.Header.Values("Warning"); (len(warnings) > 0) != tt.own {
				t.Errorf("a registration has the warnings %q", warnings)
			}
			const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
			observed := strings.TrimSuffix(crd, "}") + `,"status":{"observedGeneration":1}}`
			if r := h.Do("POST", definitions+"?dryRun=All&fieldValidation=Strict", observed); (r.Code == http.StatusBadRequest) != (tt.name == "1.34") {
				t.Errorf("a definition with a field that came with 1.35: %d %.300s", r.Code, r.Raw)
			}
			h.Must(http.StatusCreated, "POST", definitions, crd)
			for _, path := range []string{"/openapi/v3/api/v1", "/openapi/v3/apis/example.com/v1", "/openapi/v2"} {
				harness.Eventually(t, path+" is served", func() error {
					r := h.Do("GET", path, "")
					if r.Code != http.StatusOK || path == "/openapi/v2" && !strings.Contains(string(r.Raw), "com.example.v1.Thing") {
						return fmt.Errorf("%d", r.Code)
					}
					if has := strings.Contains(string(r.Raw), "Pending lists the initializers that must act"); has != tt.own {
						t.Errorf("%s has initializers: %t", path, has)
					}
					return nil
				})
			}
		})
	}
}

// S26.3: flags enable later API versions.
func TestLaterVersionsOfAnEmulatedRelease(t *testing.T) {
	t.Parallel()
	const refusal = `cannot enable version storagemigration.k8s.io/v1 in runtime-config because all the resources have been introduced after the current version 1.34. ` +
		`Consider setting --runtime-config-emulation-forward-compatible=true`
	if got := harness.Refuses(t, "--emulated-version=1.34", "--feature-gates=StorageVersionMigrator=true", "--runtime-config=storagemigration.k8s.io/v1=true"); !strings.Contains(got, refusal) {
		t.Errorf("got %s", got)
	}
	s := harness.Sole(t, rejecting...)
	if h := s.HTTP(t, nil); resourcesIn(h, "/apis/storagemigration.k8s.io/v1") == nil {
		t.Error("storagemigration.k8s.io/v1 is not served")
	}
}

// theReleaseItself verifies that a server with --min-compatibility-version=1.37 and without emulation has the feature
// gates and the CEL libraries of the release itself.
func theReleaseItself(t *testing.T, s *harness.Server) {
	t.Helper()
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	made := h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods", hostnamed)
	if got := made.At("spec", "hostnameOverride"); got != "web.example.com" {
		t.Errorf("spec.hostnameOverride is %v", got)
	}
	const uses = `{"metadata":{"name":"includes"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["leases"]}]},` +
		`"validations":[{"expression":"[1, 2].includes(2)"}]}}`
	h.Must(http.StatusCreated, "POST", apiAdmission+"/validatingadmissionpolicies", uses)
	other := harness.Shared(t).HTTP(t, nil)
	refused := other.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", apiAdmission+"/validatingadmissionpolicies", uses)
	if !strings.Contains(refused.Message, "undeclared reference to 'includes'") {
		t.Errorf("got %s", refused.Message)
	}
}

// S26.8: servers with different releases share an etcd, and a server switches to an older release and back on
// the same data.
func TestReleasesOnTheSameData(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	newer := harness.Start(t, "--etcd-servers", etcd.URL)
	older := harness.Start(t, "--etcd-servers", etcd.URL, "--emulated-version=1.34")
	h, old := newer.HTTP(t, nil), older.HTTP(t, nil)
	ns := newer.Namespace(t)
	pod := "/api/v1/namespaces/" + ns + "/pods/hostnamed"
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods", hostnamed)
	const policy = `{"metadata":{"name":"kept.example.com"},"spec":{"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],` +
		`"operations":["CREATE"],"resources":["configmaps"]}]},"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/data', value: {'by': 'policy'}}]"}}]}}`
	h.Must(http.StatusCreated, "POST", apiAdmission+"/mutatingadmissionpolicies", policy)
	h.Must(http.StatusCreated, "POST", apiAdmission+"/mutatingadmissionpolicybindings", `{"metadata":{"name":"kept.example.com"},"spec":{"policyName":"kept.example.com"}}`)

	// A stored field survives a write by the older release.
	labelled := old.Must(http.StatusOK, "PATCH", pod, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch)
	if got := labelled.At("spec", "hostnameOverride"); got != "web.example.com" {
		t.Errorf("after a write of the older release, spec.hostnameOverride is %v", got)
	}
	// Each server has the kinds of its release, and evaluates policies only of these kinds.
	old.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", apiAdmission+"/mutatingadmissionpolicies/kept.example.com", "")
	for _, tt := range []struct {
		h    *harness.HTTP
		name string
		want any
	}{{h, "by-newer", "policy"}, {old, "by-older", nil}} {
		made := tt.h.Must(http.StatusCreated, "POST", configMaps(ns), `{"metadata":{"name":"`+tt.name+`"}}`)
		if got := made.At("data", "by"); got != tt.want {
			t.Errorf("%s: data.by is %v, want %v", tt.name, got, tt.want)
		}
	}
	// A read without a resourceVersion includes all writes acknowledged by the other server.
	for i := range 5 {
		name := fmt.Sprintf("n%d", i)
		old.Must(http.StatusCreated, "POST", configMaps(ns), configMap(name))
		h.Get(configMaps(ns) + "/" + name)
	}
	// Each release reads the objects stored by the other.
	old.Must(http.StatusCreated, "POST", "/apis/apps/v1/namespaces/"+ns+"/deployments",
		`{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	h.Get("/apis/apps/v1/namespaces/" + ns + "/deployments/d")

	// The newer server stops and restarts: objects that the older release did not serve still exist.
	newer.Stop(t)
	old.Must(http.StatusCreated, "POST", configMaps(ns), `{"metadata":{"name":"meanwhile"}}`)
	again := harness.Start(t, "--etcd-servers", etcd.URL).HTTP(t, nil)
	again.Get(apiAdmission + "/mutatingadmissionpolicies/kept.example.com")
	if got := again.Get(pod).At("spec", "hostnameOverride"); got != "web.example.com" {
		t.Errorf("spec.hostnameOverride is %v", got)
	}
}

// S26.8: an older release starts on the data of a newer one, and both run alternately. The older release
// keeps values that it would reject in a new object, and rejects new ones, like upstream's validation of
// updates. Each server reads the objects of the other.
func TestADowngradeOnExistingData(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	etcd := harness.StartEtcd(t)
	first := harness.Start(t, "--etcd-servers", etcd.URL)
	h := first.HTTP(t, nil)
	ns := first.Namespace(t)
	services, scalers := "/api/v1/namespaces/"+ns+"/services", "/apis/autoscaling/v2/namespaces/"+ns+"/horizontalpodautoscalers"
	// The name of a service may begin with a digit since 1.36, and the minimum number of replicas may be zero
	// since 1.37.
	service := func(name string) string { return `{"metadata":{"name":"` + name + `"},"spec":{"ports":[{"port":80}]}}` }
	scaler := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"minReplicas":0,"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},` +
			`"metrics":[{"type":"External","external":{"metric":{"name":"queue"},"target":{"type":"Value","value":"1"}}}]}}`
	}
	h.Must(http.StatusCreated, "POST", services, service("1web"))
	h.Must(http.StatusCreated, "POST", scalers, scaler("to-zero"))
	h.Must(http.StatusCreated, "POST", "/apis/storagemigration.k8s.io/v1/storageversionmigrations", `{"metadata":{"name":"later"},"spec":{"resource":{"resource":"configmaps"}}}`)
	first.Stop(t)

	older := harness.Start(t, "--etcd-servers", etcd.URL, "--emulated-version=1.35")
	old := older.HTTP(t, nil)
	const label = `{"metadata":{"labels":{"by":"older"}}}`
	old.Must(http.StatusOK, "PATCH", services+"/1web", label, "Content-Type", mergePatch)
	patched := old.Must(http.StatusOK, "PATCH", scalers+"/to-zero", label, "Content-Type", mergePatch)
	if got := patched.At("spec", "minReplicas"); got != 0.0 {
		t.Errorf("after a write of the older release, spec.minReplicas is %v", got)
	}
	old.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", services, service("2web"))
	old.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", scalers, scaler("to-zero-2"))
	old.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", "/apis/storagemigration.k8s.io/v1/storageversionmigrations/later", "")

	newer := harness.Start(t, "--etcd-servers", etcd.URL)
	h = newer.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", services, service("2web"))
	h.Must(http.StatusOK, "PATCH", services+"/1web", `{"metadata":{"labels":{"too":"newer"}}}`, "Content-Type", mergePatch)
	old.Must(http.StatusCreated, "POST", services, service("web"))
	for _, by := range []*harness.HTTP{h, old} {
		if got := by.Get(services+"/1web").At("metadata", "labels"); len(got.(map[string]any)) != 2 {
			t.Errorf("1web has the labels %v", got)
		}
		by.Get(services + "/2web")
		by.Get(services + "/web")
	}
	h.Get("/apis/storagemigration.k8s.io/v1/storageversionmigrations/later")
}
