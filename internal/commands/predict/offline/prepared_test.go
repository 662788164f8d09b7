package offline_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/builtins"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

// planned plans requests with one validating policy for each expression.
func planned(t *testing.T, q *offline.Request, expressions ...string) *plan.Plan {
	t.Helper()
	var files strings.Builder
	for i, e := range expressions {
		fmt.Fprintf(&files, `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p%[1]d}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}
  validations: [{expression: %[2]q, message: %[2]q}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p%[1]d}
spec: {policyName: p%[1]d, validationActions: [Deny]}
`, i, e)
	}
	return plannedBy(t, q, files.String())
}

func written(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	list, err := offline.Objects("object", []byte(text))
	if err != nil || len(list) != 1 {
		t.Fatalf("%d objects, %v", len(list), err)
	}
	return list[0]
}

const (
	pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1, memory: 1Mi}}}]%s}%s}"
	web = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, generation: %d}, spec: {replicas: %d, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}%s}"
)

// S9.23: validating policies see the object as the registry prepares it between the passes: without the fields of
// disabled feature gates, with the status set by the registry, and with derived fields. Each expression holds for the
// prepared object, and not for the object as sent.
func TestPoliciesSeePreparedObjects(t *testing.T) {
	for _, tc := range []struct{ name, object, old, holds string }{
		{"a field of a gate that is off", fmt.Sprintf(pod, ", evictionResponders: [{name: example.com/a}]", ""), "", "!has(object.spec.evictionResponders)"},
		{"the status of a pod is that of a new one", fmt.Sprintf(pod, "", ", status: {phase: Running}"), "", "object.status.phase == 'Pending'"},
		{"the class of a pod follows from its resources", fmt.Sprintf(pod, "", ""), "", "object.status.qosClass == 'Guaranteed'"},
		{"the status of a Deployment is dropped", fmt.Sprintf(web, 7, 1, ", status: {replicas: 3}"), "", "!has(object.status.replicas)"},
		{"the generation of a new object is 1", fmt.Sprintf(web, 7, 1, ""), "", "object.metadata.generation == 1"},
		{"that of a changed one goes up", fmt.Sprintf(web, 9, 2, ""), fmt.Sprintf(web, 3, 1, ""), "object.metadata.generation == 4"},
		{"that of an unchanged one stays", fmt.Sprintf(web, 9, 1, ""), fmt.Sprintf(web, 3, 1, ""), "object.metadata.generation == 3"},
		{"an update leaves the status", fmt.Sprintf(web, 1, 2, ", status: {replicas: 9}"), fmt.Sprintf(web, 1, 1, ", status: {replicas: 2}"), "object.status.replicas == 2"},
		{"the selector of a Job is made", "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}", "",
			"has(object.spec.selector) && 'batch.kubernetes.io/controller-uid' in object.spec.selector.matchLabels"},
		{"and its labels are on the pods", "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}", "",
			"object.spec.template.metadata.labels['batch.kubernetes.io/job-name'] == 'a'"},
		{"a service has an address", "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}", "", "object.spec.clusterIP != ''"},
		{"a new object has a uid", fmt.Sprintf(pod, "", ""), "", "object.metadata.uid != ''"},
		{"the status of a claim is dropped", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}, status: {phase: Bound}}", "", "!has(object.status.phase)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := &offline.Request{Operation: "CREATE", Object: written(t, tc.object)}
			if tc.old != "" {
				q.Operation, q.Old = "UPDATE", written(t, tc.old)
			}
			if p := planned(t, q, tc.holds); p.Rejection != "" {
				t.Errorf("rejected: %s", p.Rejection)
			}
			if p := planned(t, q, "!("+tc.holds+")"); !strings.Contains(p.Rejection, tc.holds) {
				t.Errorf("not rejected by the opposite: %q", p.Rejection)
			}
		})
	}
}

// Reviews are rejected as their registries reject them, and unreadable managed fields reject nothing.
func TestReviewsAndManagersAreValidated(t *testing.T) {
	const readable = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: [{manager: a, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:data': {}}}]}}"
	for _, tc := range []struct{ name, object, says string }{
		{"without a token", "{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {}}", "token is required for TokenReview in authentication"},
		{"with a token", "{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {token: a}}", ""},
		{"without a user", "{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {nonResourceAttributes: {path: /a, verb: get}}}", "at least one of user or group must be specified"},
		{"with a user", "{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: a, nonResourceAttributes: {path: /a, verb: get}}}", ""},
		{"without a namespace", "{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectRulesReview, spec: {}}", "no namespace on request"},
		{"with managers", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: [{manager: a}]}}", ""},
		{"with managers that can be read", readable, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			expression := "true"
			if tc.object == readable {
				expression = "has(object.metadata.managedFields)"
			}
			p := planned(t, &offline.Request{Operation: "CREATE", Object: written(t, tc.object)}, expression)
			if (p.Rejection != "") != (tc.says != "") || !strings.Contains(p.Rejection, tc.says) {
				t.Errorf("got %q, want %q", p.Rejection, tc.says)
			}
		})
	}
}

// Mutating policies run before, and see the object as sent.
func TestMutatingPoliciesSeeWhatIsSent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  matchConditions: [{name: sent, expression: "object.metadata.generation == 7"}]
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/labels", value: {"seen": "sent"}}]'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := builtins.Read([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	u := written(t, fmt.Sprintf(web, 7, 1, ""))
	_, made, err := w.Try(t.Context(), &offline.Request{Operation: "CREATE", Kind: w.Kinds.Of(u.GroupVersionKind()), Namespace: "default", Name: "web", Object: u})
	if err != nil {
		t.Fatal(err)
	}
	if made.GetLabels()["seen"] != "sent" || made.GetGeneration() != 1 {
		t.Errorf("labels %v, generation %d", made.GetLabels(), made.GetGeneration())
	}
}

// S9.24: the object of each built-in kind is validated as by a server, after mutation and before validating admission.
func TestObjectsAreValidated(t *testing.T) {
	secret := "{apiVersion: v1, kind: Secret, metadata: {name: a}, immutable: true, data: {a: %s}}"
	for _, tc := range []struct{ name, object, old, says string }{
		{"a service with port 0", "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 0}]}}", "", "spec.ports[0].port"},
		{"a service", "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}", "", ""},
		{"a service for names elsewhere", "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: ExternalName, externalName: example.com}}", "", ""},
		{"a headless service", "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None, ports: [{port: 80}]}}", "", ""},
		{"an immutable secret that changes", fmt.Sprintf(secret, "eA=="), fmt.Sprintf(secret, "eQ=="), "field is immutable when `immutable` is set"},
		{"one that does not", fmt.Sprintf(secret, "eA=="), fmt.Sprintf(secret, "eA=="), ""},
		{"another selector of a Deployment", strings.Replace(fmt.Sprintf(web, 1, 1, ""), "{app: a}}, template: {metadata: {labels: {app: a}}", "{app: b}}, template: {metadata: {labels: {app: b}}", 1),
			fmt.Sprintf(web, 1, 1, ""), "spec.selector"},
		{"a name that is none", "{apiVersion: v1, kind: ConfigMap, metadata: {name: A_b}}", "", "metadata.name"},
		{"a service that keeps its address", "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 81}]}}",
			"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: 10.0.0.9, clusterIPs: [10.0.0.9], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, ports: [{port: 80}]}}", ""},
		{"a role for nothing", "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: []}]}", "", "rules[0].verbs"},
		{"a namespace", "{apiVersion: v1, kind: Namespace, metadata: {name: a}}", "", ""},
		{"a node", "{apiVersion: v1, kind: Node, metadata: {name: a}}", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := &offline.Request{Operation: "CREATE", Object: written(t, tc.object)}
			if tc.old != "" {
				q.Operation, q.Old = "UPDATE", written(t, tc.old)
			}
			p := planned(t, q, "true")
			if tc.says == "" && p.Rejection != "" || !strings.Contains(p.Rejection, tc.says) {
				t.Errorf("rejection %q, want %q", p.Rejection, tc.says)
			}
			if tc.says != "" && p.RejectedBy() != plan.ValidationName {
				t.Errorf("rejected by %q", p.RejectedBy())
			}
		})
	}
}
