package monitoring_test

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// ofAgent reports whether an expression selects metrics of gatehouse agent.
func ofAgent(e expression) bool { return strings.Contains(e.expr, "gatehouse_agent_") }

// event is the audit event of a request with a failed webhook.
const event = `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a","stage":"ResponseComplete",
	"requestURI":"/api/v1/namespaces/shop/pods","verb":"create","user":{"username":"anna"},"objectRef":{"resource":"pods","namespace":"shop","name":"p","apiVersion":"v1"},"responseStatus":{"code":201},
	"annotations":{"failed-open.mutation.webhook.admission.k8s.io/round_0_index_0":"away.example.com","mutation.webhook.admission.k8s.io/round_0_index_0":"{\"configuration\":\"away\",\"webhook\":\"away.example.com\",\"mutated\":false}"},
	"requestReceivedTimestamp":"2026-01-02T03:04:05.000000Z","stageTimestamp":"2026-01-02T03:04:05.100000Z"}]}`

// S32.15, S32.17: an agent serves every metric and label that the alerts and the dashboard use.
func TestQueriesAskForWhatTheAgentHas(t *testing.T) {
	dir := t.TempDir()
	s := harness.Start(t, "--token-auth-file", harness.WriteFile(t, filepath.Join(dir, "tokens"), "bob-token,bob,bob\n"))
	expired := harness.NewAuthority(t, "monitoring").Expired(t, "localhost").Certificate[0]
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: expired}))
	manifests := harness.WriteFile(t, filepath.Join(dir, "objects.yaml"), fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: gatehouse-agent}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bob}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: away}
webhooks:
- name: away.example.com
  clientConfig: {url: "https://%s", caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [podtemplates]}]
  sideEffects: None
  admissionReviewVersions: [v1]
  failurePolicy: Ignore
`, harness.Refused(t), bundle))
	if r := harness.Run(t, "kubectl", "--kubeconfig", s.Kubeconfig, "apply", "-f", manifests); r.Code != 0 {
		t.Fatal(r.Err)
	}
	credentials := filepath.Join(dir, "agent")
	address := harness.StartCommand(t, "agent", "--kubeconfig", s.Kubeconfig, "--credentials", credentials, "--bind-address", "127.0.0.1", "--secure-port", "0")
	ca, err := os.ReadFile(filepath.Join(credentials, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(credentials, "audit-token"))
	if err != nil {
		t.Fatal(err)
	}
	as := func(token string) *harness.HTTP {
		return s.HTTP(t, &rest.Config{Host: address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	}
	as(strings.TrimSpace(string(token))).Must(http.StatusOK, "POST", "/audit", event)
	queries := slices.DeleteFunc(append(dashboards(t), alerts(t)...), func(e expression) bool { return !ofAgent(e) })
	if len(queries) == 0 {
		t.Fatal("no query is about the agent")
	}
	harness.Eventually(t, "all is measured", func() error {
		metrics := read(string(as("bob-token").Get("/metrics").Raw))
		var missing []error
		for _, e := range queries {
			for _, problem := range metrics.missing(e.expr, e.labels...) {
				missing = append(missing, fmt.Errorf("%s: %s: there is no %s", e.where, e.expr, problem))
			}
		}
		return errors.Join(missing...)
	})
}
