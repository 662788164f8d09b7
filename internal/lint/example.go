package lint

import "strings"

// The examples of rules are files with one webhook in one of these kinds, unless a rule needs
// more.
const (
	mutating   = "MutatingWebhookConfiguration"
	validating = "ValidatingWebhookConfiguration"

	// anyPod is a rule about all new pods, and outside a selector that spares the system and
	// the server of the example.
	anyPod  = "rules:\n- {apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}\n"
	outside = "namespaceSelector:\n  matchExpressions:\n  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, policies]}\n"
)

// hook is a file with one webhook, that has some more fields.
func hook(kind, fields string) string {
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: " + kind + `
metadata: {name: policies}
webhooks:
- name: check.policies.example.com
  clientConfig: {service: {namespace: policies, name: policies}}
  admissionReviewVersions: [v1]
  sideEffects: None
` + indent(fields, "  ")
}

// policy is a file with a policy, that has some more fields in its spec, and maybe in its
// rule, and a binding.
func policy(fields string, rule ...string) string {
	return `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: images}
spec:
  matchConstraints:
    resourceRules:
    - {` + strings.Join(rule, "") + `apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
` + indent(fields, "  ") + `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: images}
spec: {policyName: images, validationActions: [Deny]}
`
}

func indent(text, by string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(by + line)
	}
	return b.String()
}
