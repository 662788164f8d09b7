package replay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/auditreport"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
)

// cluster returns a snapshot with objects.
func cluster(t *testing.T, text string) *clustersnapshot.Cluster {
	t.Helper()
	s := &clustersnapshot.Cluster{APIVersion: clustersnapshot.APIVersion, Kind: clustersnapshot.Kind}
	for _, o := range set(t, text).Objects {
		s.Items = append(s.Items, o.Content)
	}
	return s
}

// S25.10, S25.11: rejections, warnings and changes by policies are reported for each object; the cluster's own
// registrations are not evaluated.
func TestAudit(t *testing.T) {
	s := cluster(t, `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: shop}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 10
---
apiVersion: gone.example.com/v1
kind: Gone
metadata: {name: gone}
`+policyAndBinding("own", `{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: ["*"]}`, "false", "Deny"))
	policies := set(t, policyAndBinding("team", `{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [namespaces]}`, "'team' in object.metadata.?labels.orValue({})", "Deny")+
		policyAndBinding("low", `{apiGroups: [scheduling.k8s.io], apiVersions: [v1], operations: [UPDATE], resources: [priorityclasses]}`, "object.value < 5", "Warn")+`
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: stamp}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [serviceaccounts]}]}
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"stamp": "yes"}}}'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: stamp}
spec: {policyName: stamp}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: accounts.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [serviceaccounts]}]
  admissionReviewVersions: [v1]
  sideEffects: None
`)
	r, err := Audit(t.Context(), AuditOptions{Source: &Existing{Snapshot: s}, Snapshot: s, Policies: policies})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%s %s %s", f.Result, f.Title(), f.Policy))
	}
	want := []string{"warn PriorityClass high low", "change ServiceAccount shop/robot stamp", "fail Namespace web team"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Share{{Name: "hooks/accounts.example.com", Count: 1}}, r.Webhooks); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
	if len(r.Input.LeftOut) == 0 || !strings.Contains(r.Input.LeftOut[0].Reason, "nothing defines the kind Gone") {
		t.Errorf("left out: %+v", r.Input.LeftOut)
	}
}

// S25.21: without policies from files, objects are evaluated against the policies of the cluster, without its webhooks.
func TestAClusterIsAuditedByItself(t *testing.T) {
	namespaces := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n"
	s := cluster(t, namespaces+policyAndBinding("own", `{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [namespaces]}`, "'team' in object.metadata.?labels.orValue({})", "Deny")+`
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: namespaces.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [namespaces]}]
  admissionReviewVersions: [v1]
  sideEffects: None
`)
	r, err := Audit(t.Context(), AuditOptions{Source: &Existing{Snapshot: s}, Snapshot: s})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 1 || r.Findings[0].Policy != "own" || r.Findings[0].Name != "web" || r.Findings[0].Result != auditreport.Fails || len(r.Webhooks) > 0 {
		t.Errorf("findings %+v, webhooks %v", r.Findings, r.Webhooks)
	}
	s = cluster(t, namespaces)
	if r, err = Audit(t.Context(), AuditOptions{Source: &Existing{Snapshot: s}, Snapshot: s}); err != nil || r.Judged > 0 || len(r.Input.Problems) != 1 {
		t.Errorf("without policies: %+v, %v", r, err)
	}
}

// An error about a file is reported for the file's own object only: an object of the same kind and name in another
// group may be left out.
func TestWhatIsLeftOutIsNoFaultOfAFile(t *testing.T) {
	s := cluster(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: gone.example.com/v1\nkind: ConfigMap\nmetadata: {name: limits, namespace: shop}\n")
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits, namespace: shop}\n"
	for _, of := range []string{"v1", "gone.example.com/v1"} {
		name := strings.ReplaceAll(of, "/", ".")
		text += "---\n" + strings.Replace(policyAndBinding(name, `{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [namespaces]}`, "true", "Deny"),
			"spec:\n", "spec:\n  paramKind: {apiVersion: "+of+", kind: ConfigMap}\n", 1)
	}
	r, err := Audit(t.Context(), AuditOptions{Source: &Existing{Snapshot: s}, Snapshot: s, Policies: set(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "this server does not serve gone.example.com/v1") {
		t.Errorf("the notes are %q", notes)
	}
}
