package after

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// events are a small log: a pod that a webhook changed, a rejection by a policy, and a broken line.
const events = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"a1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/pods","verb":"create","user":{"username":"alice\u001b[31m"},"objectRef":{"resource":"pods","namespace":"shop","name":"web","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestObject":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"nginx"}]}},"requestReceivedTimestamp":"2026-11-28T01:22:06.000000Z","stageTimestamp":"2026-11-28T01:22:06.250000Z","annotations":{"mutation.webhook.admission.k8s.io/round_0_index_0":"{\"configuration\":\"labels\",\"webhook\":\"labels.example.com\",\"mutated\":true}","patch.webhook.admission.k8s.io/round_0_index_0":"{\"configuration\":\"labels\",\"webhook\":\"labels.example.com\",\"patch\":[{\"op\":\"add\",\"path\":\"/metadata/labels/team\",\"value\":\"a\"}],\"patchType\":\"JSONPatch\"}"}}
{"broken
{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a2","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/yard/pods","verb":"create","user":{"username":"bob"},"objectRef":{"resource":"pods","namespace":"yard","name":"big","apiVersion":"v1"},"responseStatus":{"metadata":{},"status":"Failure","message":"pods \"big\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces","reason":"Forbidden","code":403},"requestReceivedTimestamp":"2026-11-28T01:22:05.000000Z","stageTimestamp":"2026-11-28T01:22:05.250000Z"}
`

// clusterSnapshot is a snapshot of the cluster of the log.
const clusterSnapshot = `apiVersion: gatehouse.dev/v1alpha1
kind: ClusterSnapshot
cluster: {kubernetesVersion: v1.37.2}
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {judged: "yes"}}}
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: checks}
  webhooks:
  - name: checks.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    clientConfig: {url: "https://127.0.0.1:1/"}
    namespaceSelector: {matchLabels: {judged: "yes"}}
    rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
`

// S30.1, S30.9: the commands read a log in place of a server.
func TestCommandsReadAuditLogs(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	log := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(log, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshot := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(snapshot, []byte(clusterSnapshot), 0o600); err != nil {
		t.Fatal(err)
	}
	trace, blame := NewTrace, NewBlame
	for _, c := range []struct {
		claim   string
		command func(command.Streams) *cobra.Command
		args    string
		has     []string
		hasNot  []string
	}{
		{"the oldest request comes first, and a broken line is named", trace, "-A", []string{"yard", "big", "Denied", "shop", "web", "Allowed", "not readable as JSON (" + log + ":2)"}, nil},
		{"a namespace is chosen", trace, "-n shop", []string{"web"}, []string{"big"}},
		{"an outcome is chosen", trace, "-A --outcome denied", []string{"big"}, []string{"web"}},
		{"a webhook is chosen", trace, "-A --webhook labels.example.com", []string{"web"}, []string{"big"}},
		{"an audit ID names a request", trace, "a2", []string{"rejected by PodSecurity", "validating pass, PodSecurity: rejected"}, nil},
		{"the text of others does not act on a terminal", trace, "a1", []string{`add /metadata/labels/team "a"`}, []string{"\x1b[31m"}},
		{"an ID that is not there", trace, "a3", []string{"no request with the ID a3"}, nil},
		{"nothing matches", trace, "-n none", []string{"No request of the audit log matches. -A looks in all namespaces."}, nil},
		{"a log is not followed", trace, "--follow", []string{"leave out --follow"}, nil},
		{"a server and a log", trace, "--context c", []string{"--audit-log reads no server"}, nil},
		{"two sources of registrations", trace, "--registrations a --from-cluster b", []string{"exclude each other"}, nil},
		{"registrations that are not there", trace, "--registrations none", []string{"--registrations: none: no such file or directory"}, nil},
		{"S30.6: a snapshot says who was asked", trace, "a1 --snapshot " + snapshot, []string{"checks/checks.example.com: allowed", "derived"}, nil},
		{"a snapshot that is none", trace, "--snapshot " + log, []string{"--snapshot: ", "audit.log"}, nil},
		{"a snapshot and files", trace, "--registrations a --snapshot b", []string{"exclude each other"}, nil},
		{"who set which field", blame, "pod/web -n shop", []string{"metadata.labels.team", `+ "a"`, "labels/labels.example.com", "unknown", "since 2026-11-28T01:22:06Z"}, nil},
		{"a kind that is not built in", blame, "widget/web", []string{"name it as PLURAL.GROUP"}, nil},
	} {
		var out bytes.Buffer
		cmd := c.command(command.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		cmd.SetArgs(append(strings.Fields(c.args), "--audit-log", log))
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			out.WriteString(err.Error())
		}
		for _, text := range c.has {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: no %q in:\n%s", c.claim, text, out.String())
			}
		}
		for _, text := range c.hasNot {
			if strings.Contains(out.String(), text) {
				t.Errorf("%s: %q in:\n%s", c.claim, text, out.String())
			}
		}
	}
}

// The output of --audit-policy is a valid policy. It logs all data that traces need, and nothing of secrets.
func TestAuditPolicy(t *testing.T) {
	p, err := policy.LoadPolicyFromBytes([]byte(auditPolicy))
	if err != nil {
		t.Fatal(err)
	}
	rules := policy.NewPolicyRuleEvaluator(p)
	for _, c := range []struct {
		verb, group, resource, sub string
		want                       auditinternal.Level
	}{
		{"create", "", "pods", "", auditinternal.LevelRequestResponse},
		{"patch", "apps", "deployments", "", auditinternal.LevelRequestResponse},
		{"delete", "example.com", "widgets", "", auditinternal.LevelRequestResponse},
		{"get", "", "pods", "exec", auditinternal.LevelMetadata},
		{"create", "", "pods", "exec", auditinternal.LevelMetadata},
		{"update", "", "secrets", "", auditinternal.LevelMetadata},
		{"create", "", "serviceaccounts", "token", auditinternal.LevelMetadata},
		{"update", "apps", "deployments", "status", auditinternal.LevelMetadata},
		{"list", "", "secrets", "", auditinternal.LevelNone},
		{"get", "", "pods", "", auditinternal.LevelNone},
		{"create", "authentication.k8s.io", "tokenreviews", "", auditinternal.LevelNone},
		{"update", "coordination.k8s.io", "leases", "", auditinternal.LevelNone},
	} {
		got := rules.EvaluatePolicyRule(&authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "u"}, Verb: c.verb, APIGroup: c.group, Resource: c.resource, Subresource: c.sub, ResourceRequest: true})
		if got.Level != c.want {
			t.Errorf("%s %s.%s/%s: %s, want %s", c.verb, c.resource, c.group, c.sub, got.Level, c.want)
		}
	}
}
