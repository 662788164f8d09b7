package cli

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/test/speed"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// engines responds like Gatekeeper and Kyverno, each at its path.
func engines(t *testing.T) *httptest.Server {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		object := &corev1.ConfigMap{}
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, review) != nil || json.Unmarshal(review.Request.Object.Raw, object) != nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		deny := func(text string) { response.Allowed, response.Result = false, &metav1.Status{Code: 403, Message: text} }
		switch r.URL.Path {
		case "/gatekeeper":
			if object.Labels["owner"] == "" {
				deny("[owner] there must be an owner\nof the object\n[other] there must be a date\n[owner] so the rules say")
			}
			response.Warnings = []string{"[soft] be careful"}
		case "/kyverno":
			if object.Labels["owner"] == "" {
				deny("\n\nresource ConfigMap/default/" + object.Name + " was blocked due to the following policies \n\nrequire:\n  owner: 'validation error: no owner'\n")
			}
			if object.Labels["owner"] == "unknown" {
				deny("Policy later failed: the owner is unknown")
			}
		case "/mutate":
			patch := admissionv1.PatchTypeJSONPatch
			response.Patch, response.PatchType = []byte(`[{"op": "add", "path": "/data", "value": {"a": "b"}}]`), &patch
		}
		review.Response = response
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return server
}

// hookAt returns a configuration for a webhook of a server.
func hookAt(server *httptest.Server, kind, path string) string {
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return fmt.Sprintf(`---
apiVersion: admissionregistration.k8s.io/v1
kind: %sWebhookConfiguration
metadata: {name: engine%s}
webhooks:
- name: engine.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "%s%s", caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
`, kind, strings.ReplaceAll(path, "/", "-"), server.URL, path, base64.StdEncoding.EncodeToString(bundle))
}

// With --call, suites of other tools are evaluated by the engines that run behind webhooks, and expectations
// that no response can show are skipped (S24.17).
func TestSuitesAreJudgedByEnginesThatRun(t *testing.T) {
	const objects = `
-- engine/owned.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: owned, labels: {owner: ada}}}
-- engine/free.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: free}}
-- engine/stray.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: stray, labels: {owner: unknown}}}
-- engine/secret.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: secret}}
-- engine/patched.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: owned}, data: {a: b}}
`
	const gator = `
-- engine/rego.yaml --
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k}
spec: {crd: {spec: {names: {kind: K}}}, targets: [{target: admission.k8s.gatekeeper.sh, rego: "package k"}]}
-- engine/owner.yaml --
{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {name: owner}}
-- engine/absent.yaml --
{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {name: absent}}
-- engine/soft.yaml --
{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {name: soft}, spec: {enforcementAction: warn}}
-- engine/dry.yaml --
{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {name: dry}, spec: {enforcementAction: dryrun}}
-- engine/twice.yaml --
{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {name: twice}, spec: {parameters: {a: b}}}
-- engine/twice-2.yaml --
{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {name: twice}, spec: {parameters: {a: c}}}
-- engine/invalid.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: Not_a_name}}
-- engine/suite.yaml --
apiVersion: test.gatekeeper.sh/v1alpha1
kind: Suite
tests:
- name: owner
  template: rego.yaml
  constraint: owner.yaml
  cases:
  - {name: free, object: free.yaml, assertions: [{violations: 2}, {violations: 1, message: "(?s)owner.of the object"}]}
  - {name: owned, object: owned.yaml, assertions: [{violations: no}]}
  - {name: wrong, object: owned.yaml, assertions: [{violations: yes}]}
  - {name: not called, object: secret.yaml, assertions: [{violations: no}]}
  - {name: rejected by the API, object: invalid.yaml, assertions: [{violations: yes}]}
  - {name: inventory, object: owned.yaml, inventory: [secret.yaml], assertions: [{violations: no}]}
- name: absent
  template: rego.yaml
  constraint: absent.yaml
  cases:
  - {name: owned, object: owned.yaml, assertions: [{violations: no}]}
  - {name: free, object: free.yaml, assertions: [{violations: yes}]}
- name: soft
  template: rego.yaml
  constraint: soft.yaml
  cases:
  - {name: owned, object: owned.yaml, assertions: [{violations: 1, message: careful}]}
- name: twice
  template: rego.yaml
  constraint: twice.yaml
  cases:
  - {name: owned, object: owned.yaml, assertions: [{violations: no}]}
- name: twice, with other parameters
  template: rego.yaml
  constraint: twice-2.yaml
  cases:
  - {name: owned, object: owned.yaml, assertions: [{violations: no}]}
- name: dry
  template: rego.yaml
  constraint: dry.yaml
  cases:
  - {name: owned, object: owned.yaml, assertions: [{violations: no}]}
`
	const kyverno = `
-- engine/policies.yaml --
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: require}
spec: {rules: [{name: owner}, {name: date}, {name: makes, generate: {}}]}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: data}
spec: {rules: [{name: add, mutate: {}}]}
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: later}
-- engine/kyverno-test.yaml --
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: suite}
policies: [policies.yaml]
resources: [free.yaml, owned.yaml, stray.yaml]
results:
- {policy: require, rule: owner, kind: ConfigMap, resources: [free], result: fail}
- {policy: require, rule: owner, kind: ConfigMap, resources: [owned], result: pass}
- {policy: require, rule: owner, kind: ConfigMap, resources: [stray], result: fail}
- {policy: require, rule: date, kind: ConfigMap, resources: [owned], result: pass}
- {policy: require, rule: makes, kind: ConfigMap, resources: [owned], result: pass}
- {policy: later, kind: ConfigMap, resources: [stray], result: fail}
- {policy: later, kind: ConfigMap, resources: [owned], result: skip}
- {policy: data, rule: add, kind: ConfigMap, resources: [owned], patchedResources: patched.yaml, result: pass}
`
	server := engines(t)
	away := httptest.NewTLSServer(http.NotFoundHandler())
	away.Close()
	cases := map[string]struct {
		hooks, files string
		call         bool
		// Statuses of the tests in order: p, f, s.
		want, says string
	}{
		"gator":               {hookAt(server, "Validating", "/gatekeeper"), gator, true, "ppfsss sf p ss s", "no webhook named absent in any answer"},
		"gator, not called":   {hookAt(server, "Validating", "/gatekeeper"), gator, false, "ssssss ss s ss s", "its Rego needs a running Gatekeeper"},
		"gator, no hooks":     {"", gator, true, "ssssss ss s ss s", "the paths have no registration of a webhook to call"},
		"gator, away":         {hookAt(away, "Validating", "/gatekeeper"), gator, true, "ssssss ss s ss s", "a webhook could not be called: "},
		"kyverno":             {hookAt(server, "Validating", "/kyverno") + hookAt(server, "Mutating", "/mutate"), kyverno, true, "ppfss ppp", "the rule generates objects after the answer"},
		"kyverno, not called": {hookAt(server, "Validating", "/kyverno"), kyverno, false, "sssss sss", "a running Kyverno evaluates it"},
		"gator, one name":     {hookAt(server, "Validating", "/gatekeeper"), gator, true, "ppfsss sf p ss s", "2 different policies called twice"},
		"gator, invalid":      {hookAt(server, "Mutating", "/mutate"), gator, true, "fsfsss sf f ss s", "the API server rejects the request before all webhooks have answered (api)"},
	}
	for _, name := range speed.Some(t, 4, slices.Sorted(maps.Keys(cases))) {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			t.Chdir(unpack(t, objects+tc.files+"-- engine/hooks.yaml --\n"+tc.hooks))
			args := []string{"test", "engine", "-o", "json"}
			if tc.call {
				args = append(args, "--call")
			}
			out, problems, code := execution(t.Context(), "", args...)
			var report struct {
				Tests []struct{ Name, Status, Message string }
			}
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%v: exit %d, %s", err, code, problems)
			}
			got, said := "", ""
			for _, test := range report.Tests {
				got += test.Status[:1]
				said += fmt.Sprintf("%s: %s %s\n", test.Name, test.Status, test.Message)
			}
			if want := strings.ReplaceAll(tc.want, " ", ""); got != want || !strings.Contains(said, tc.says) {
				t.Errorf("%s, want %s with %q:\n%s%s", got, want, tc.says, said, out)
			}
			want := command.ExitOK
			if strings.Contains(tc.want, "f") {
				want = command.ExitError
			} else if !strings.Contains(tc.want, "p") {
				// No test was evaluated (S24.20).
				want = command.ExitUsage
			}
			if code != want {
				t.Errorf("exit %d, want %d", code, want)
			}
		})
	}
}

// unpack writes the files of an archive into a new directory.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	files, err := txtar.FS(txtar.Parse([]byte(archive)))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}
