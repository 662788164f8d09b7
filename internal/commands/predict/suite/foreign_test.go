package suite

import (
	"strings"
	"testing"
)

// resultsOf runs the tests of files, which are written to a directory of their own.
func resultsOf(t *testing.T, texts map[string]string) []*Result {
	t.Helper()
	write(t, texts)
	set, err := Find([]string{"."}, Reading{})
	if err != nil || len(set.Errors) > 0 {
		t.Fatal(err, set)
	}
	report, err := Run(t.Context(), Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return report.Tests
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n"

// Suites of gator share a test environment, and none sees the results of another suite's policies (S24.12).
func TestSuitesOfGatorDoNotSeeEachOther(t *testing.T) {
	suite := func(violations string) string {
		return "apiVersion: test.gatekeeper.sh/v1alpha1\nkind: Suite\ntests: [{name: a, template: template.yaml, constraint: constraint.yaml, cases: [{name: b, object: object.yaml, assertions: [{violations: " + violations + "}]}]}]\n"
	}
	results := resultsOf(t, map[string]string{
		"template.yaml": "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: never}\n" +
			"spec: {crd: {spec: {names: {kind: Never}}}, targets: [{target: admission.k8s.gatekeeper.sh, code: [{engine: K8sNativeValidation, source: {validations: [{expression: 'false', message: never}]}}]}]}\n",
		"constraint.yaml": "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Never\nmetadata: {name: never}\n",
		"object.yaml":     configMap, "one.yaml": suite("1"), "two.yaml": suite("1"),
	})
	for _, r := range results {
		if r.Status != Passed || len(r.Outcome.Warnings) > 0 {
			t.Errorf("%s: %s %q %+v, warnings %q", r.File, r.Status, r.Message, r.Failures, r.Outcome.Warnings)
		}
	}
	if len(results) != 2 {
		t.Errorf("%d results", len(results))
	}
}

// A fault in a param of kaptest has the file and the line of the param (S24.12).
func TestParamsOfKaptestHaveTheirPlace(t *testing.T) {
	results := resultsOf(t, map[string]string{
		"policy.yaml": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n" +
			"spec: {paramKind: {apiVersion: v1, kind: ConfigMap}, matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]}, validations: [{expression: 'true'}]}\n",
		"objects.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\n" + configMap + "data:\n  a: b\n  c: [d]\n",
		"suite.yaml":   "policies: [policy.yaml]\nresources: [objects.yaml]\nvapTestSuites: [{policy: p, tests: [{object: {kind: Secret, name: s}, param: {name: a}, expect: admit}]}]\n",
	})
	if len(results) != 1 || results[0].Status != Broken || !strings.Contains(results[0].Message, "objects.yaml:") || strings.Contains(results[0].Message, "suite.yaml:1") {
		t.Errorf("%+v", results[0])
	}
}

// A null in a custom resource stays, as its API server keeps it: policies may test for it (S24.4).
func TestNullsOfCustomResourcesStay(t *testing.T) {
	results := resultsOf(t, map[string]string{
		"world.yaml": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: limits.sample.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}}
spec:
  group: sample.k8s.io
  scope: Cluster
  names: {kind: Limit, plural: limits}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: sample.k8s.io/v1
kind: Limit
metadata: {name: some, creationTimestamp: null}
spec: {none: null}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p, creationTimestamp: null}
spec:
  paramKind: {apiVersion: sample.k8s.io/v1, kind: Limit}
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "!('none' in params.spec)", message: there is a null}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p, validationActions: [Deny], paramRef: {name: some, parameterNotFoundAction: Deny}}
`,
		"tests.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests: [{name: a, request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}, expect: {allowed: false, message: {contains: there is a null}}}]\n",
	})
	if len(results) != 1 || results[0].Status != Passed {
		t.Errorf("%+v", results[0])
	}
}
