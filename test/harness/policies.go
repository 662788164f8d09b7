package harness

import "fmt"

// MutatingPolicy returns a MutatingAdmissionPolicy with its binding, for one resource of one namespace.
// mutations is a YAML list.
func MutatingPolicy(name, namespace, group, resource, reinvocation, mutations string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  reinvocationPolicy: %[5]s
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
    resourceRules: [{operations: [CREATE, UPDATE], apiGroups: ["%[3]s"], apiVersions: [v1], resources: [%[4]s]}]
  mutations:
%[6]s
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, name, namespace, group, resource, reinvocation, mutations)
}

const (
	ValidatingPolicies = RegistrationGroup + "v1/validatingadmissionpolicies"
	ValidatingBindings = RegistrationGroup + "v1/validatingadmissionpolicybindings"
	MutatingPolicies   = RegistrationGroup + "v1/mutatingadmissionpolicies"
	MutatingBindings   = RegistrationGroup + "v1/mutatingadmissionpolicybindings"
	// OnNothing matches no existing resource.
	OnNothing  = `matchConstraints: {resourceRules: [{apiGroups: [never.example.com], apiVersions: [v1], operations: [CREATE], resources: [nothings]}]}`
	AlwaysTrue = `validations: [{expression: "true"}]`
	NoMutation = `mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}}], reinvocationPolicy: Never`
)

// PolicyObject returns an object of one of the four policy kinds in JSON; spec is YAML in flow style.
func PolicyObject(name, spec string) string {
	return ToJSON(`{metadata: {name: %s}, spec: {%s}}`, name, spec)
}

var (
	PolicyMerge = []string{"Content-Type", "application/merge-patch+json"}
	PolicyApply = []string{"Content-Type", "application/apply-patch+yaml"}
	PolicyKinds = []struct{ Path, Kind, Spec string }{
		{ValidatingPolicies, "ValidatingAdmissionPolicy", OnNothing + ", " + AlwaysTrue},
		{MutatingPolicies, "MutatingAdmissionPolicy", OnNothing + ", " + NoMutation},
		{ValidatingBindings, "ValidatingAdmissionPolicyBinding", "policyName: none, validationActions: [Audit]"},
		{MutatingBindings, "MutatingAdmissionPolicyBinding", "policyName: none"},
	}
)
