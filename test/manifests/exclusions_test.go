package manifests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// exclusionConfig returns an AdmissionConfiguration with exclusion rules.
func exclusionConfig(rules string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nexclusionRules:\n" + rules
}

func leasesIn(namespace string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
}

func lease(name string) string {
	return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":{"holderIdentity":"a"}}`, name)
}

// askedAboutAll returns a webhook that matches all requests.
func askedAboutAll(hook *harness.Hook) map[string]any {
	return map[string]any{
		"name": "everything.example.com", "clientConfig": hook.ClientConfig(), "failurePolicy": "Fail", "sideEffects": "None",
		"timeoutSeconds": 30, "admissionReviewVersions": []any{"v1"}, "rules": []any{map[string]any{
			"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "operations": []any{"*"}, "resources": []any{"*/*"},
		}},
	}
}

// TestExclusions verifies section S23: a webhook for everything hangs, its failure policy is Fail, and
// excluded requests still succeed.
func TestExclusions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, auditLog := filepath.Join(dir, "admission.yaml"), filepath.Join(dir, "audit.log")
	example, err := os.ReadFile("../../examples/exclusions/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, config, string(example)+`
- {name: configmaps, effect: skip, apiGroups: [""], resources: [configmaps], names: [spared]}
- {name: endpoints, effect: ignoreFailures, apiGroups: [""], resources: [endpoints], names: [a]}
`)
	policy := writeFile(t, filepath.Join(dir, "audit.yaml"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	s := harness.Start(t, "--admission-control-config-file", config, "--audit-log-path", auditLog, "--audit-policy-file", policy)
	h := s.HTTP(t, nil)
	for _, ns := range []string{"kube-node-lease"} {
		if r := h.Do("POST", "/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`); r.Code != http.StatusCreated && r.Code != http.StatusConflict {
			t.Fatalf("%d %s", r.Code, r.Raw)
		}
	}
	h.Must(http.StatusCreated, "POST", "/api/v1/nodes", `{"metadata":{"name":"node-1"}}`)
	h.Must(http.StatusCreated, "POST", leasesIn("kube-node-lease"), lease("held"))
	h.Must(http.StatusCreated, "POST", leasesIn("default"), lease("held"))
	// A policy with a runtime error, a policy that denies, and an initializer.
	createAll(h, pathOfKind, strings.ReplaceAll(staticPolicy("failing", ruleFor("", "endpoints, configmaps"), "object.spec.none == 1", "never"), ".static.k8s.io", ".example.com"))
	createAll(h, pathOfKind, strings.ReplaceAll(staticPolicy("denying", ruleFor("", "endpoints/any, configmaps"), "false", "denied"), ".static.k8s.io", ".example.com"))
	h.Must(http.StatusCreated, "POST", registrationsPath("v1alpha1", "InitializerConfiguration"), toJSON(`
{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: InitializerConfiguration, metadata: {name: all},
 initializers: [{name: all.example.com, rules: [{apiGroups: [""], apiVersions: ["*"], resources: [configmaps]}]}]}`))
	hooks := harness.NewWebhookServer(t, nil)
	hook := hooks.Hook("/", harness.Hang)
	mutating := hooks.Hook("/mutating", harness.Hang)
	for kind, hook := range map[string]*harness.Hook{validating: hook, "MutatingWebhookConfiguration": mutating} {
		h.Must(http.StatusCreated, "POST", registrationsPath("v1", kind), asJSON(map[string]any{
			"metadata": map[string]any{"name": "everything"}, "webhooks": []any{askedAboutAll(hook)},
		}))
	}
	// soon fails the test if a request takes as long as the timeout of its webhooks.
	soon := func(t *testing.T, most time.Duration, f func()) {
		t.Helper()
		began := time.Now()
		f()
		if took := time.Since(began); took > most {
			t.Errorf("it took %s", took)
		}
	}
	// about returns the reviews of a resource that the hooks received. Controllers of the server write
	// objects of other resources at any time.
	about := func(resource string, hooks ...*harness.Hook) []*harness.Review {
		var reviews []*harness.Review
		for _, hook := range hooks {
			for _, review := range hook.Reviews() {
				if review.Text("resource", "resource") == resource {
					reviews = append(reviews, review)
				}
			}
		}
		return reviews
	}
	merge := []string{"Content-Type", "application/merge-patch+json"}

	t.Run("S23.5 leases of nodes and the status of nodes are written", func(t *testing.T) {
		for range 3 {
			soon(t, 20*time.Second, func() {
				h.Must(http.StatusOK, "PATCH", leasesIn("kube-node-lease")+"/held", fmt.Sprintf(`{"spec":{"holderIdentity":%q}}`, time.Now()), merge...)
				h.Must(http.StatusOK, "PATCH", "/api/v1/nodes/node-1/status", fmt.Sprintf(`{"status":{"phase":%q}}`, time.Now().Format("150405.000")), merge...)
			})
		}
		for _, resource := range []string{"leases", "nodes"} {
			for _, review := range about(resource, hook, mutating) {
				t.Errorf("a webhook was asked: %v", review.Request())
			}
		}
	})
	t.Run("S23.3 the node itself is not excluded", func(t *testing.T) {
		r := h.Do("PATCH", "/api/v1/nodes/node-1?timeout=3s", `{"metadata":{"labels":{"a":"b"}}}`, merge...)
		if r.Code < 400 {
			t.Errorf("%d %s", r.Code, r.Raw)
		}
		if len(about("nodes", mutating)) == 0 {
			t.Error("the webhook was not asked")
		}
	})
	t.Run("S23.6 S23.7 other leases wait for a second, and go on", func(t *testing.T) {
		mutating.Forget()
		soon(t, 25*time.Second, func() {
			h.Must(http.StatusOK, "PATCH", leasesIn("default")+"/held", `{"spec":{"holderIdentity":"b"}}`, merge...)
		})
		asked := about("leases", mutating)
		if len(asked) == 0 {
			t.Fatal("the webhook was not asked")
		}
		for _, review := range asked {
			if got := review.HTTP.URL.Query().Get("timeout"); got != "1s" {
				t.Errorf("S23.7 the timeout sent to the webhook is %q", got)
			}
		}
		// S23.6: a denial is not ignored.
		mutating.Answer(harness.Deny(map[string]any{"message": "not this one"}))
		defer mutating.Answer(harness.Hang)
		// On a slow machine, the webhook may exceed its timeout of a second.
		harness.Eventually(t, "the request is denied", func() error {
			if r := h.Do("PATCH", leasesIn("default")+"/held", `{"spec":{"holderIdentity":"c"}}`, merge...); r.Code == http.StatusOK || !strings.Contains(r.Text("message"), "not this one") {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
			return nil
		})
	})
	t.Run("S23.4 policies and initializers are skipped, too", func(t *testing.T) {
		r := h.Must(http.StatusCreated, "POST", configMaps("default"), configMap("spared"))
		if r.At("metadata", "initializers") != nil {
			t.Errorf("it waits: %s", r.Raw)
		}
	})
	t.Run("S23.9 the server reports every use", func(t *testing.T) {
		m := h.Metrics()
		for _, c := range []struct {
			plugin, rule, effect string
			least                float64
		}{
			{"ValidatingAdmissionWebhook", "node-heartbeats", "skip", 3},
			{"MutatingAdmissionWebhook", "node-status", "skip", 3},
			{"MutatingAdmissionWebhook", "leader-election", "ignoreFailures", 1},
			{"MutatingAdmissionWebhook", "leader-election-in-time", "capTimeout", 1},
			{"ValidatingAdmissionPolicy", "configmaps", "skip", 2},
			{"Initializers", "configmaps", "skip", 1},
		} {
			if got := m.Value("gatehouse_admission_exclusions_total", fmt.Sprintf("plugin=%q", c.plugin), fmt.Sprintf("rule=%q", c.rule), fmt.Sprintf("effect=%q", c.effect)); got < c.least {
				t.Errorf("%+v: %v", c, got)
			}
		}
		harness.Eventually(t, "the audit events", func() error { return auditedExclusions(auditLog) })
		harness.Eventually(t, "the trace", func() error {
			if list := string(h.Get(tracesIn("kube-node-lease")).Raw); !strings.Contains(list, `"exclusions":[{"rule":"node-heartbeats","effect":"skip","entries":[{"kind":"MutatingWebhookConfiguration"`) {
				return fmt.Errorf("it is not in %s", list)
			}
			return nil
		})
	})
	t.Run("S23.10 an explanation shows it", func(t *testing.T) {
		out := harness.Run(t, "explain", "--kubeconfig", s.Kubeconfig, "-f", "../../examples/exclusions/lease.yaml")
		if !strings.Contains(out.Out, `exclusion rule "node-heartbeats" of the server skips it`) {
			t.Errorf("%+v", out)
		}
	})
	t.Run("S23.6 a policy that fails is ignored", func(t *testing.T) {
		for _, kind := range []string{validating, "MutatingWebhookConfiguration"} {
			h.Must(http.StatusOK, "DELETE", registrationsPath("v1", kind)+"/everything", "")
		}
		r := h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/endpoints", `{"metadata":{"name":"a"}}`)
		if got := h.Metrics().Value("gatehouse_admission_exclusions_total", `plugin="ValidatingAdmissionPolicy"`, `rule="endpoints"`, `effect="ignoreFailures"`); got != 1 {
			t.Errorf("%v uses; %s", got, r.Raw)
		}
	})
}

// TestExclusionRulesAreReadAgain verifies S23.8.
func TestExclusionRulesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "admission.yaml")
	put(t, dir, "admission.yaml", exclusionConfig("- {name: a, effect: skip, resources: [leases], names: [a]}\n"))
	s := harness.Start(t, "--admission-control-config-file", config)
	h := s.HTTP(t, nil)
	createAll(h, pathOfKind, strings.ReplaceAll(staticPolicy("all", ruleFor("", "configmaps"), "false", "never"), ".static.k8s.io", ".example.com"))
	judged := func() bool {
		return h.Do("POST", configMaps("default")+"?dryRun=All", configMap("a")).Code != http.StatusCreated
	}
	reloads := func(status string) float64 {
		return h.Metrics().Value("gatehouse_admission_exclusion_rules_reloads_total", fmt.Sprintf("status=%q", status))
	}
	if !judged() {
		t.Fatal("the policy is not in force")
	}
	await := func(want bool) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("requests are judged: %v", want), func() error {
			if got := judged(); got != want {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
	}
	put(t, dir, "admission.yaml", exclusionConfig("- {name: b, effect: skip, resources: [configmaps]}\n"))
	await(false)
	before := reloads("failure")
	put(t, dir, "admission.yaml", exclusionConfig("- {name: b, effect: skip, resources: [ConfigMap]}\n"))
	harness.Eventually(t, "the bad file is counted", func() error {
		if got := reloads("failure"); got <= before {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if judged() {
		t.Error("a bad file ended the exclusion")
	}
	put(t, dir, "admission.yaml", exclusionConfig("  []\n"))
	await(true)
}

// TestBadExclusionRulesStopTheStart verifies S23.1 and S23.2.
func TestBadExclusionRulesStopTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := writeFile(t, filepath.Join(dir, "admission.yaml"), exclusionConfig("- {name: a, effect: never, resources: [leases]}\n"))
	r := harness.Run(t, "serve", "--data-dir", filepath.Join(dir, "data"), "--secure-port", "0", "--admission-control-config-file", config)
	const want = `exclusionRules[0].effect: Unsupported value: "never": supported values: "skip", "ignoreFailures", "capTimeout"`
	if r.Code == 0 || !strings.Contains(r.Err, config) || !strings.Contains(r.Err, want) {
		t.Errorf("%+v", r)
	}
}

// auditedExclusions returns an error if an annotation is missing in the audit log of TestExclusions.
func auditedExclusions(file string) error {
	events, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(events)) {
		var event struct{ Annotations map[string]string }
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			continue
		}
		for key, value := range event.Annotations {
			if strings.HasPrefix(key, "exclusions.gatehouse.dev/") {
				found[key+" "+value] = true
			}
		}
	}
	for _, want := range []string{
		`exclusions.gatehouse.dev/ValidatingAdmissionWebhook [{"rule":"node-heartbeats","effect":"skip","entries":["everything/everything.example.com"]}]`,
		`exclusions.gatehouse.dev/ValidatingAdmissionPolicy [{"rule":"configmaps","effect":"skip","entries":["denying.example.com","failing.example.com"]}]`,
		`exclusions.gatehouse.dev/Initializers [{"rule":"configmaps","effect":"skip","entries":["all/all.example.com"]}]`,
		`exclusions.gatehouse.dev/MutatingAdmissionWebhook [{"rule":"leader-election","effect":"ignoreFailures","entries":["everything/everything.example.com"]},{"rule":"leader-election-in-time","effect":"capTimeout","entries":["everything/everything.example.com"]}]`,
	} {
		if !found[want] {
			return fmt.Errorf("no audit event has %s; those found: %v", want, found)
		}
	}
	return nil
}

// TestTheExamplesOfExclusionsWork follows docs/exclusions.md, and uses the example of manifest files in
// docs/policies.md.
func TestTheExamplesOfExclusionsWork(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	dir := t.TempDir()
	page, err := os.ReadFile("../../docs/exclusions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"admission.yaml", "hanging.yaml", "lease.yaml"} {
		if !strings.Contains(string(page), "examples/exclusions/"+path) {
			t.Errorf("docs/exclusions.md does not name %s", path)
		}
	}
	exclusions, err := os.ReadFile("../../examples/exclusions/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := os.ReadFile("../../examples/manifests/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies, err := filepath.Abs("../../examples/manifests/validating-policies")
	if err != nil {
		t.Fatal(err)
	}
	_, plugins, _ := strings.Cut(string(manifests), "kind: AdmissionConfiguration\n")
	config := writeFile(t, filepath.Join(dir, "admission.yaml"), string(exclusions)+strings.ReplaceAll(plugins, "/etc/gatehouse/validating-policies", policies))
	s := harness.StartTest(t, "--admission-control-config-file", config)
	// As in the guide, the commands have no --namespace.
	k := s.Kubectl(t, "")
	k.Must("create", "configmap", "before")
	k.Must("apply", "-f", "../../examples/exclusions/hanging.yaml")
	if out := k.Must("apply", "-f", "../../examples/exclusions/lease.yaml"); !strings.Contains(out, "lease.coordination.k8s.io/node-1 created") {
		t.Error(out)
	}
	if r := k.Run("", "create", "configmap", "settings"); r.Code == 0 || !strings.Contains(r.Err, "everything.example.com") {
		t.Errorf("%+v", r)
	}
	if out := harness.Run(t, "explain", "--kubeconfig", s.Kubeconfig, "-f", "../../examples/exclusions/lease.yaml"); !strings.Contains(out.Out, `exclusion rule "node-heartbeats" of the server skips it`) {
		t.Errorf("%+v", out)
	}
	k.Must("label", "validatingwebhookconfiguration", "everything.example.com", "protected=yes")
	if r := k.Run("", "delete", "validatingwebhookconfiguration", "everything.example.com"); r.Code == 0 || !strings.Contains(r.Err, "it has the label protected") {
		t.Errorf("%+v", r)
	}
}
