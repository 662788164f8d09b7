package suite

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S24.3: an old object gets the defaults, and the additions of a create: its status, its generation, generated fields.
// Values in the test stay, and the object is neither validated nor admitted.
func TestOldObjectsAreAsAServerStoresThem(t *testing.T) {
	const containers = "containers: [{name: c, image: i}]"
	const job = "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: {restartPolicy: Never, " + containers + "}}}}"
	const policy = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}
  auditAnnotations: [{key: old, valueExpression: "EXPRESSION"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p, validationActions: [Audit]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, default: 7, maximum: 9}}}, status: {type: object, properties: {ready: {type: boolean}}}}}}}
`
	for _, tc := range speed.Some(t, 1, []struct{ name, request, expression, want, added string }{
		{"a job has a selector and a label in its template", "oldObject: " + job + ", patch: {merge: {spec: {parallelism: 2}}}",
			"string(oldObject.spec.selector.matchLabels == oldObject.spec.template.metadata.labels.filter(k, k == 'batch.kubernetes.io/controller-uid').map(k, {k: oldObject.spec.template.metadata.labels[k]})[0])", "true", "spec.selector.matchLabels"},
		{"a pod is pending", "oldObject: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {" + containers + "}}", "oldObject.status.phase + ' ' + oldObject.status.qosClass", "Pending BestEffort", `status.phase="Pending"`},
		{"what the test says of the status stays", "oldObject: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {" + containers + "}, status: {phase: Running}}", "oldObject.status.phase + ' ' + oldObject.status.qosClass", "Running BestEffort", `status.qosClass="BestEffort"`},
		{"a deployment has a generation and defaults", "oldObject: {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {" + containers + "}}}}",
			"string(oldObject.metadata.generation) + ' ' + string(oldObject.spec.replicas)", "1 1", "spec.replicas=1"},
		{"what the test says of the generation stays", "oldObject: {apiVersion: apps/v1, kind: Deployment, metadata: {name: a, generation: 5}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {" + containers + "}}}}",
			"string(oldObject.metadata.generation)", "5", "spec.replicas=1"},
		{"a custom object", "oldObject: {apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {}}", "string(oldObject.metadata.generation) + ' ' + string(oldObject.spec.size)", "1 7", "spec.size=7"},
		{"the status of a custom object", "oldObject: {apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {size: 8}, status: {ready: true}}", "string(oldObject.status.ready)", "true", "metadata.generation=1"},
		{"nobody validates it", "oldObject: {apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {size: 12}}", "string(oldObject.spec.size)", "12", "metadata.generation=1"},
		{"no plugin judges it", "oldObject: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {priorityClassName: missing, " + containers + "}}", "oldObject.spec.priorityClassName + string(has(oldObject.spec.serviceAccountName))", "missingfalse", `spec.dnsPolicy="ClusterFirst"`},
		{"an event is found by both groups", "oldObject: {apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: a}, eventTime: '2026-01-01T00:00:00.000000Z', reportingController: example.com/c, reportingInstance: i, action: a, reason: r, type: Normal, regarding: {kind: Pod, namespace: default, name: p}}, patch: {merge: {metadata: {labels: {a: b}}}}",
			"string(oldObject.reason)", "r", ""},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			r := runWith(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests: [{name: a, request: {"+tc.request+"}, expect: {allowed: true, auditAnnotations: {p/old: \""+tc.want+"\"}}}]\n"+strings.Replace(policy, "EXPRESSION", tc.expression, 1), Options{}).Tests[0]
			if r.Status != Passed {
				t.Fatalf("%s %q %+v", r.Status, r.Message, r.Failures)
			}
			if added := strings.Join(r.Outcome.Added, " "); !strings.Contains(added, tc.added) {
				t.Errorf("added is %s, want %s", added, tc.added)
			}
		})
	}
}
