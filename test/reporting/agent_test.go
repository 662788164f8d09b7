package reporting

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// auditEvent returns an audit event of a request by anna in a namespace.
func auditEvent(namespace string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id-%[1]s","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/%[1]s/secrets","verb":"create","user":{"username":"anna"},"objectRef":{"resource":"secrets","namespace":%[1]q,"name":"s","apiVersion":"v1"},"responseStatus":{"code":400,"status":"Failure","message":"admission webhook \"no.example.com\" denied the request: token=%[2]s"},"annotations":{"mutation.webhook.admission.k8s.io/round_0_index_0":"{\"configuration\":\"c\",\"webhook\":\"no.example.com\",\"mutated\":false}","pod-security.kubernetes.io/enforce-policy":"x"},"requestReceivedTimestamp":"2026-01-02T03:04:05.000000Z","stageTimestamp":"2026-01-02T03:04:05.100000Z"}`,
		namespace, secretText)
}

// secretText is a credential in a webhook's message about a Secret.
const secretText = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"

// S32.5: the cluster's RBAC controls access to the agent's traces; S32.7: the agent needs exactly the rights
// that it prints.
func TestTheAgentShowsTracesToWhoMayReadThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := sole(t)
	admin := s.HTTP(t, nil)
	credentials := filepath.Join(dir, "agent")
	token := agentToken(t, s, harness.Run(t, "agent", "--rbac").Out)
	address := harness.StartCommand(t, "agent", "--kubeconfig", kubeconfigOf(t, s, token), "--credentials", credentials, "--bind-address", "127.0.0.1", "--secure-port", "0")
	ca, err := os.ReadFile(filepath.Join(credentials, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	as := func(token string) *harness.HTTP {
		c := &rest.Config{Host: address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
		return s.HTTP(t, c)
	}
	sender, err := os.ReadFile(filepath.Join(credentials, "audit-token"))
	if err != nil {
		t.Fatal(err)
	}
	list := `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + auditEvent("shop") + "," + auditEvent("bank") + `]}`
	as("").Must(http.StatusUnauthorized, "POST", "/audit", list)
	as("bob-token").Must(http.StatusUnauthorized, "POST", "/audit", list)
	as(strings.TrimSpace(string(sender))).Must(http.StatusOK, "POST", "/audit", list)
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	bind(admin, "shop", "traces", "gatehouse-trace-reader", "alice")
	const traces = "/apis/gatehouse.dev/v1alpha1/admissiontraces"
	all := as("bob-token")
	harness.Eventually(t, "the traces are there", func() error {
		r := all.Do("GET", traces, "")
		if r.Code != http.StatusOK || len(harness.Names(r)) != 2 {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	alice := as("alice-token")
	harness.Eventually(t, "the role is in force", func() error {
		if r := alice.Do("GET", strings.Replace(traces, "admission", "namespaces/shop/admission", 1), ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	own := alice.Get(strings.Replace(traces, "admission", "namespaces/shop/admission", 1))
	names := harness.Names(own)
	if len(names) != 1 || own.At("items", "0", "metadata", "namespace") != "shop" {
		t.Errorf("alice sees %v", names)
	}
	if strings.Contains(string(own.Raw), secretText) {
		t.Errorf("a trace shows what webhooks said about a Secret: %s", own.Raw)
	}
	for _, path := range []string{traces, strings.Replace(traces, "admission", "namespaces/bank/admission", 1), traces + "/" + names[0], "/metrics"} {
		if r := alice.Do("GET", path, ""); r.Code != http.StatusForbidden {
			t.Errorf("alice gets %s: %d", path, r.Code)
		}
		if r := as("nobody's").Do("GET", path, ""); r.Code != http.StatusUnauthorized {
			t.Errorf("somebody unknown gets %s: %d", path, r.Code)
		}
	}
	if r := all.Do("POST", traces, "{}"); r.Code != http.StatusMethodNotAllowed {
		t.Errorf("a trace can be made: %d", r.Code)
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		as("").Get(path)
	}
	harness.Contains(t, "the metrics", string(all.Get("/metrics").Raw), `gatehouse_agent_events_total{result="kept"} 2`, "gatehouse_agent_dropped_events_total 0", "gatehouse_agent_trace_bytes ")
	// S32.19: the agent derives which webhooks the API server called.
	admin.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"metadata":{"name":"guards"},"webhooks":[{"name":"guard.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Ignore","clientConfig":{"url":"https://127.0.0.1:1/"},
		"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"shop"}},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["services"]}]}]}`)
	n := 0
	harness.Eventually(t, "a trace has what follows from the registrations", func() error {
		n++
		at := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		name := fmt.Sprint("derived-", n)
		event := fmt.Sprintf(`{"level":"Metadata","auditID":"d","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/services","verb":"create","user":{"username":"anna"},"objectRef":{"resource":"services","namespace":"shop","name":%q,"apiVersion":"v1"},"responseStatus":{"code":201},"requestReceivedTimestamp":%q,"stageTimestamp":%q}`, name, at, at)
		as(strings.TrimSpace(string(sender))).Must(http.StatusOK, "POST", "/audit", `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[`+event+`]}`)
		found := all.Get(traces + "?fieldSelector=webhook%3Dguard.example.com")
		for _, item := range found.At("items").([]any) {
			call := harness.At(item, "steps", "0", "calls", "0")
			if harness.At(call, "known") == "derived" && harness.At(call, "webhook", "configuration") == "guards" {
				return nil
			}
		}
		return fmt.Errorf("%d traces have the webhook", len(found.At("items").([]any)))
	})
	// The commands show the traces.
	shown := harness.WriteFile(t, filepath.Join(dir, "alice"), fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a","namespace":"shop"}}],"clusters":[{"name":"a","cluster":{"server":%q,"certificate-authority":%q}}],"users":[{"name":"a","user":{"token":"alice-token"}}]}`, address, filepath.Join(credentials, "ca.crt")))
	r := harness.Run(t, "trace", "--kubeconfig", shown)
	harness.Contains(t, "gatehouse trace", r.Out, names[0], "secrets s", "Denied")
	r = harness.Run(t, "trace", names[0], "--kubeconfig", shown)
	harness.Contains(t, "gatehouse trace ID", r.Out, "no.example.com: denied", "(not shown: the request was about secrets)")
	r = harness.Run(t, "kubectl", "--kubeconfig", shown, "get", "admissiontraces")
	harness.Contains(t, "kubectl get", r.Out, names[0], "Denied")
}

// bind binds a user to a cluster role, in a namespace or, if it is empty, everywhere.
func bind(admin *harness.HTTP, ns, name, role, user string) {
	path := "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	if ns != "" {
		path = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + ns + "/rolebindings"
	}
	admin.Must(http.StatusCreated, "POST", path, fmt.Sprintf(
		`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[{"kind":"User","name":%q}]}`, name, role, user))
}

// apply applies objects of any namespaces.
func apply(t *testing.T, s *harness.Server, objects string) {
	t.Helper()
	if r := harness.RunInput(t, objects, "kubectl", "--kubeconfig", s.Kubeconfig, "apply", "-f", "-"); r.Code != 0 {
		t.Fatalf("kubectl apply: exit code %d\n%s%s", r.Code, r.Out, r.Err)
	}
}

// agentToken applies the manifests with the rights of an agent, makes bob an administrator, and returns a token of the
// agent's service account.
func agentToken(t *testing.T, s *harness.Server, manifests string) string {
	t.Helper()
	admin := s.HTTP(t, nil)
	const of = "/api/v1/namespaces/gatehouse-agent/serviceaccounts"
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"gatehouse-agent"}}`)
	admin.Must(http.StatusCreated, "POST", of, `{"metadata":{"name":"gatehouse-agent"}}`)
	bind(admin, "", "bob", "cluster-admin", "bob")
	apply(t, s, manifests)
	// The next test gets the server without the namespaces of this one, except kube-system.
	t.Cleanup(func() {
		const left = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/gatehouse-agent"
		if code, err := admin.Try(context.Background(), "DELETE", left, ""); err != nil || code != http.StatusOK {
			t.Errorf("deleting the role binding: %d, %v", code, err)
		}
	})
	return admin.Must(http.StatusCreated, "POST", of+"/gatehouse-agent/token", `{"spec":{"expirationSeconds":3600}}`).Text("status", "token")
}

// S32.7: the manifests of deploy/agent grant the rights that gatehouse agent prints, and their pods meet the
// restricted level.
func TestTheManifestsOfTheAgent(t *testing.T) {
	t.Parallel()
	base, err := filepath.Abs("../../deploy/agent/base")
	if err != nil {
		t.Fatal(err)
	}
	rights, err := os.ReadFile(filepath.Join(base, "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if printed := harness.Run(t, "agent", "--rbac").Out; printed != string(rights) {
		t.Errorf("deploy/agent/base/rbac.yaml is not what gatehouse agent --rbac prints:\n%s", printed)
	}
	s := sole(t)
	r := harness.Run(t, "kubectl", "--kubeconfig", s.Kubeconfig, "apply", "-k", base)
	if r.Code != 0 || strings.Contains(r.Err, "Warning") {
		t.Errorf("exit code %d\n%s", r.Code, r.Err)
	}
	harness.Contains(t, "what is applied", r.Out, "deployment.apps/gatehouse-agent created", "rolebinding.rbac.authorization.k8s.io/gatehouse-agent created", "poddisruptionbudget.policy/gatehouse-agent created")
	if s.HTTP(t, nil).Get("/apis/apps/v1/namespaces/gatehouse-agent/deployments/gatehouse-agent").At("spec", "selector", "matchLabels", "app.kubernetes.io/name") != "gatehouse-agent" {
		t.Error("the deployment does not select its pods")
	}
}
