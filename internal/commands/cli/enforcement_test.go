package cli

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// denying is a webhook server that denies every request. Each webhook has its own message.
func denying(t *testing.T) *httptest.Server {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, review) != nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Code: 403, Message: strings.TrimPrefix(r.URL.Path, "/") + " says no"}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return server
}

// softWorld writes the files of the test: in soft/ a webhook and a policy with audit-only enforcement; in both/
// the webhook next to an enforced one; the object that they reject; a test that expects no rejection; and a
// snapshot of a cluster with the object.
func softWorld(t *testing.T) {
	t.Chdir(t.TempDir())
	server := denying(t)
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	hook := func(name, annotations string) string {
		return fmt.Sprintf(`---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %s, annotations: {%s}}
webhooks:
- name: %s.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "%s/%s", caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
`, name, annotations, name, server.URL, name, bundle)
	}
	const soft = "gatehouse.dev/enforcement: Audit"
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: teams, annotations: {gatehouse.dev/enforcement: Audit}}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations: [{expression: "has(object.metadata.labels)", message: "a team is needed"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: teams}
spec: {policyName: teams, validationActions: [Deny]}
`
	const object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}}\n"
	snapshot := func(served string) string {
		return "apiVersion: gatehouse.dev/v1alpha1\nkind: ClusterSnapshot\ncluster: {kubernetesVersion: v1.37.2}\n" + served + "items:\n- " + strings.Replace(object, "settings", "stored", 1)
	}
	for name, text := range map[string]string{
		"soft/hook.yaml": hook("a-soft", soft), "policy/policy.yaml": policy, "both/hooks.yaml": hook("a-soft", soft) + hook("b-hard", ""), "object.yaml": object,
		"tests/policy.yaml": policy, "tests/tests.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests:\n- name: soft\n  request: {object: " +
			strings.TrimSpace(object) + "}\n  expect: {allowed: true}\n",
		"unknown.yaml": snapshot(""), "gatehouse.yaml": snapshot("served: [{apiVersion: gatehouse.dev/v1alpha1, kinds: [AdmissionExplanation]}, {apiVersion: v1, kinds: [ConfigMap, Namespace]}, {apiVersion: admissionregistration.k8s.io/v1, kinds: [ValidatingWebhookConfiguration]}]\n"),
		"kubernetes.yaml": snapshot("served: [{apiVersion: v1, kinds: [ConfigMap, Namespace]}, {apiVersion: admissionregistration.k8s.io/v1, kinds: [ValidatingWebhookConfiguration]}]\n"), "gatehouse/.gatehouse.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: Configuration\nfor: gatehouse\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// S28.2, S28.11: in every tool, audit-only webhooks and policies reject nothing on Gatehouse and everything on a
// kube-apiserver. Files are for a kube-apiserver by default.
func TestEveryToolKnowsWhatIsSoft(t *testing.T) {
	softWorld(t)
	const (
		check   = "check --call both object.yaml"
		audit   = "audit --call --as-create soft --snapshot "
		replay  = "replay --call --as-create --with soft --existing "
		explain = "explain -f object.yaml --exit-code --registrations policy"
	)
	const note = "a kube-apiserver ignores the annotation gatehouse.dev/enforcement"
	for _, tc := range speed.Some(t, 9, []struct {
		command string
		code    int
		// prints and not are texts that the output has, and does not have.
		prints, not string
	}{
		{check + " --for gatehouse", command.ExitError, "object.yaml:1:1: error: ConfigMap default/settings: admission webhook \"b-hard.example.com\" denied the request: b-hard says no", "a-soft"},
		{check + " --for kubernetes", command.ExitError, "admission webhook \"a-soft.example.com\" denied the request: a-soft says no", ""},
		{check, command.ExitError, note + ", so these reject and change requests: ValidatingWebhookConfiguration a-soft (Audit)", ""},
		{check + " --config gatehouse/.gatehouse.yaml", command.ExitError, "b-hard says no", "a-soft"},
		{check + " --snapshot gatehouse.yaml", command.ExitError, "b-hard says no", "a-soft"},
		{check + " --snapshot kubernetes.yaml", command.ExitError, "a-soft says no", ""},
		{audit + "unknown.yaml --for gatehouse", 0, "warn ConfigMap default/stored: a-soft/a-soft.example.com: ", "fail"},
		{audit + "unknown.yaml --for kubernetes", command.ExitError, "fail ConfigMap default/stored: a-soft/a-soft.example.com: ", ""},
		{audit + "unknown.yaml", command.ExitError, note, ""},
		{audit + "gatehouse.yaml", 0, "warn ConfigMap default/stored: a-soft/a-soft.example.com: ", "fail"},
		{replay + "unknown.yaml --for gatehouse", 0, "rejected: 0 before, 0 after", "newly rejected"},
		{replay + "unknown.yaml", 0, "newly rejected: 1, by webhook a-soft/a-soft.example.com", ""},
		{replay + "gatehouse.yaml", 0, "rejected: 0 before, 0 after", "newly rejected"},
		{explain + " --for gatehouse", 0, "would be rejected", note},
		{explain + " --for kubernetes", command.ExitRejected, "a team is needed", ""},
		{explain, command.ExitRejected, note + ", so these reject and change requests: ValidatingAdmissionPolicy teams (Audit)", ""},
		{"explain -f object.yaml --for gatehouse", command.ExitUsage, "a cluster says that itself", ""},
		{"explain -f object.yaml --for me --registrations policy", command.ExitUsage, "--for", ""},
		{"test tests --for gatehouse", 0, "1 passed", note},
		{"test tests", command.ExitError, note, ""},
		{"lint policy --for gatehouse", 0, "0 warnings", "enforcement-ignored"},
		{"lint policy --for kubernetes", 0, "enforcement-ignored", ""},
		{"lint policy", 0, "enforcement-ignored", ""},
	}) {
		out, problems, code := execution(t.Context(), "", strings.Fields(tc.command)...)
		if text := out + problems; code != tc.code || !strings.Contains(text, tc.prints) || tc.not != "" && strings.Contains(text, tc.not) {
			t.Errorf("gatehouse %s: exit %d, want %d with %q and without %q:\n%s", tc.command, code, tc.code, tc.prints, tc.not, text)
		}
	}
}
