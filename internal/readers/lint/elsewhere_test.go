package lint_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// Lint rules use the CRDs of other locations: for the kinds that rules match, and for params, also by a JSON schema.
func TestLintUsesCRDsElsewhere(t *testing.T) {
	const (
		policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  PARAMS
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}]}
  validations: [{expression: "EXPRESSION"}]
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: p}, spec: {policyName: p, BINDING validationActions: [Deny]}}
`
		crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]
`
		schema = `{"type": "object", "properties": {"spec": {"type": "object", "additionalProperties": false, "properties": {"most": {"type": "integer"}}}}}`
	)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "widgets.yaml"), crd)
	writeFile(t, filepath.Join(dir, "limit_v1.json"), schema)
	locations := []string{filepath.Join(dir, "widgets.yaml"), filepath.Join(dir, "{{.ResourceKind}}_{{.ResourceAPIVersion}}.json")}
	with := func(expression string) string {
		return strings.NewReplacer("PARAMS\n", "failurePolicy: Fail\n", "EXPRESSION", expression, "BINDING", "").Replace(policy)
	}
	limited := func(expression string) string {
		return strings.NewReplacer("PARAMS", "paramKind: {apiVersion: example.com/v1, kind: Limit}", "EXPRESSION", expression, "BINDING", "paramRef: {name: l, parameterNotFoundAction: Deny},").Replace(policy)
	}
	for _, tc := range []struct {
		content   string
		locations []string
		want      string
	}{
		{with("object.spec.sice > 1"), nil, ""},
		{with("object.spec.sice > 1"), locations, "undefined field 'sice'"},
		{with("object.spec.size > 1"), locations, ""},
		{limited("object.spec.size < params.spec.least"), locations, "undefined field 'least'"},
		{limited("object.spec.size < params.spec.most"), locations, ""},
	} {
		file := filepath.Join(t.TempDir(), "file.yaml")
		writeFile(t, file, tc.content)
		w, _, _, err := offline.Survey([]string{file}, nil, &manifests.Ignore{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := crdschema.Open(tc.locations, "1.37.2")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Elsewhere(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		world, err := w.Lint(t.Context(), exampleTime, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := of(lint.Check(t.Context(), world, lint.Options{}), "expression-types")
		if tc.want == "" && len(found) > 0 || tc.want != "" && !slices.ContainsFunc(found, func(f lint.Finding) bool { return strings.Contains(f.Message, tc.want) }) {
			t.Errorf("%s: %+v, want %q", tc.content, found, tc.want)
		}
	}
}
