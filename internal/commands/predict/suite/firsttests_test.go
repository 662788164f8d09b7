package suite

import (
	"os"
	"strings"
	"testing"
)

// S24.35: the first tests of a policy are requests that a server evaluated as they expect. A validation without a
// request has a comment.
func TestFirstTests(t *testing.T) {
	policy := func(name, rest string) string {
		return `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: ` + name + `}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [` + rest + `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: ` + name + `}
spec: {policyName: ` + name + `, validationActions: [Deny]}
`
	}
	for _, tc := range []struct {
		name, policies string
		passed         int
		says           []string
	}{
		{"labels, images and numbers", policy("web", `deployments]}]}
  variables:
  - {name: pod, expression: object.spec.template.spec}
  validations:
  - {expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", message: a team is needed}
  - {expression: "variables.pod.containers.all(c, c.image.startsWith('registry.example.com/'))", message: another registry}
  - {expression: object.spec.replicas <= 5, message: too many}
  - {expression: "!has(variables.pod.hostNetwork) || variables.pod.hostNetwork == false", message: the network of the host}
`), 5, nil},
		{"what nobody can reject", policy("never", `configmaps]}]}
  validations:
  - {expression: "true || object.data.size() > 1", message: never}
`), 1, []string{"# Missing: never: no request was found that spec.validations[0] rejects"}},
		{"no binding", strings.Split(policy("free", `configmaps]}]}
  validations: [{expression: "false"}]
`), "---")[0], 0, []string{"policies.yaml: no test could be made:\nno binding of free is in .: it decides nothing."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			write(t, map[string]string{"policies.yaml": tc.policies})
			text, err := First(t.Context(), "policies.yaml", Options{})
			if tc.passed == 0 {
				if err == nil || !strings.Contains(err.Error(), tc.says[0]) {
					t.Errorf("got %v, want %q", err, tc.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, says := range tc.says {
				if !strings.Contains(string(text), says) {
					t.Errorf("%s\nwant %q in it", text, says)
				}
			}
			if err := os.WriteFile("policies-tests.yaml", text, 0o600); err != nil {
				t.Fatal(err)
			}
			set, err := Find([]string{"."}, Reading{})
			if err != nil || len(set.Errors) > 0 {
				t.Fatalf("%v %v\n%s", err, set.Errors, text)
			}
			report, err := Run(t.Context(), Options{Set: set})
			if err != nil {
				t.Fatal(err)
			}
			if report.Summary.Passed != tc.passed || report.Summary.Tests != tc.passed {
				t.Errorf("%+v\n%s", report.Summary, text)
			}
		})
	}
}
