package mutants

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// Each rule, selector, expression and failure policy of a registration is changed, at its own position (S24.30).
func TestRegistrationsAreChanged(t *testing.T) {
	const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Ignore
  matchConstraints:
    namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: NotIn, values: [d, e]}]}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}
    excludeResourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods/exec]}
  validations:
  - message: no
    expression: >-
      has(object.spec) &&
      object.spec.a < 3
`
	const rest = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec:
  policyName: p
  paramRef: {name: x, parameterNotFoundAction: Allow}
  matchResources: {objectSelector: {matchExpressions: [{key: c, operator: Exists}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: h}
webhooks:
- name: w.example.com
  matchConditions: [{name: c, expression: "a"}]
  rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods, secrets]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: m}
spec:
  variables: [{name: v, expression: "[1].map(x, x > 1)"}]
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}.a"}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: none}
`
	const subresources = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: s}
spec:
  failurePolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods, pods/resize]}
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: ["deployments/*"]}
    - {apiGroups: [batch], apiVersions: [v1], operations: [UPDATE], resources: [jobs, "jobs/*", cronjobs]}
    - {apiGroups: [policy], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ["*/*"]}
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/eviction]}
`
	for name, tc := range map[string]struct{ text, want string }{
		"a validating policy": {policy, `
9:57: rule-operation: the removal of CREATE: a request to CREATE pods that the policy rejects or changes
9:65: rule-operation: the removal of UPDATE: a request to UPDATE pods that the policy rejects or changes
10:7: resource: the removal of CREATE secrets: a request to CREATE secrets that the policy rejects or changes
12:7: resource: the removal of the exclusion of pods/exec: a request about pods/exec that is allowed only because it is excluded
7:39: selector: the removal of a: b: a request in a namespace without the label a: b, that would be rejected or changed if it were selected
7:65: selector: the removal of c NotIn d, e: a request in a namespace whose label c is d, e, that would be rejected or changed if it were selected
16:7: clause: false in place of has(object.spec) && object.spec.a < 3: a request that the validation allows
16:7: clause: the removal of has(object.spec): a request for which has(object.spec) is false while object.spec.a < 3 is true
17:7: clause: the removal of object.spec.a < 3: a request for which object.spec.a < 3 is false while has(object.spec) is true
17:7: boundary: object.spec.a <= 3 in place of object.spec.a < 3: a request for which object.spec.a is 3
17:7: boundary: object.spec.a < 2 in place of object.spec.a < 3: a request for which object.spec.a is 2
5:3: failure-policy: Fail in place of Ignore: a request for which an expression of the policy is in error, such as one without a field that it needs
`},
		"others": {rest, `
7:56: selector: the removal of c Exists: a request about an object without the label c, that would be rejected or changed if it were selected
6:23: failure-policy: Deny in place of Allow: a request for which there are no params
15:48: rule-operation: the removal of CREATE: a request to CREATE pods, secrets that the webhook rejects or changes
15:48: rule-operation: the removal of UPDATE: a request to UPDATE pods, secrets that the webhook rejects or changes
15:48: rule-operation: the removal of DELETE: a request to DELETE pods, secrets that the webhook rejects or changes
15:79: resource: the removal of pods: a request about pods that the webhook rejects or changes
15:85: resource: the removal of secrets: a request about secrets that the webhook rejects or changes
14:44: clause: true in place of a: a request that the condition alone leaves out
14:44: clause: false in place of a: a request that the condition lets through
13:3: failure-policy: Ignore in place of Fail: a request whose call fails, as with {webhook: w.example.com, refuse: true} among the webhooks of the test
21:49: boundary: x >= 1 in place of x > 1: a request for which x is 1
21:49: boundary: x > 2 in place of x > 1: a request for which x is 2
22:68: clause: the removal of Object{}.a: a request that the mutation changes
20:1: failure-policy: Ignore in place of Fail: a request for which an expression of the policy is in error, such as one without a field that it needs
`},
		"subresources": {subresources, `
8:78: resource: the removal of pods: a request about pods that the policy rejects or changes
8:84: subresource: the removal of pods/resize: a request about pods/resize that the policy rejects or changes
9:80: subresource: deployments in place of deployments/*: a request about a subresource of deployments that the policy rejects or changes
9:7: subresource: the removal of UPDATE deployments/*: a request to UPDATE deployments/* that the policy rejects or changes
10:87: subresource: the removal of jobs/*: a request about jobs/* that the policy rejects or changes
10:97: resource: the removal of cronjobs: a request about cronjobs that the policy rejects or changes
11:61: rule-operation: the removal of CREATE: a request to CREATE */* that the policy rejects or changes
11:69: rule-operation: the removal of UPDATE: a request to UPDATE */* that the policy rejects or changes
11:90: subresource: * in place of */*: a request about a subresource of * that the policy rejects or changes
12:7: subresource: the removal of CREATE pods/eviction: a request to CREATE pods/eviction that the policy rejects or changes
`},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			got.WriteByte('\n')
			for _, o := range manifests.Parse("a.yaml", []byte(tc.text)).Objects {
				before := fmt.Sprint(o.Content)
				for _, m := range Of(o, tc.text) {
					fmt.Fprintf(&got, "%d:%d: %s: %s: %s\n", m.Line, m.Column, m.Kind, strings.ReplaceAll(m.What(), "`", ""), strings.ReplaceAll(m.Notice, "`", ""))
					if fmt.Sprint(m.Content) == before {
						t.Errorf("%s is no change", m.What())
					}
				}
				if fmt.Sprint(o.Content) != before {
					t.Errorf("%s is changed itself", o.Name())
				}
			}
			if diff := cmp.Diff(tc.want, got.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
