package check_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// CRDs that are in no file come from other locations: as CRDs, or as JSON schemas, whose resource is a guess. A verdict
// that depends on the guess is unknown.
func TestCRDsElsewhere(t *testing.T) {
	const (
		schema = `{"type": "object", "properties": {"apiVersion": {"type": "string"}, "spec": {"type": "object", "additionalProperties": false, "required": ["size"], "properties": {
  "size": {"type": "integer", "minimum": 1}, "port": {"oneOf": [{"type": "string"}, {"type": "integer"}]}, "name": {"type": ["string", "null"]}}}}}`
		crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgetry.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgetry}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, maximum: 9}}}}}}}
`
		policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [RESOURCE]}]}
  validations: [{expression: "object.spec.size != 5", message: "never five"}]
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: p}, spec: {policyName: p, validationActions: [Deny]}}
---
`
		five = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 5}}\n"
	)
	dir := t.TempDir()
	for name, text := range map[string]string{"schemas/widget_v1.json": schema, "crds/crd.yaml": crd} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	schemas, crds := filepath.Join(dir, "schemas", "{{.ResourceKind}}_{{.ResourceAPIVersion}}.json"), filepath.Join(dir, "crds")
	byResource := func(name string) string { return strings.ReplaceAll(policy, "RESOURCE", name) }
	cases := map[string]struct {
		locations []string
		files     string
		want      []string
		verdict   check.Verdict
	}{
		"nowhere":                            {[]string{"default"}, five, []string{`1 unknown-kind: apiVersion: no matches for kind "Widget"`}, check.Rejected},
		"a schema":                           {[]string{"default", schemas}, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 5, port: http, name: null}}\n", nil, check.Accepted},
		"against the schema":                 {[]string{schemas}, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 0}}\n", []string{"1 invalid: Invalid value: 0: spec.size in body should be greater"}, check.Rejected},
		"a field that the schema lacks":      {[]string{schemas}, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 1, sice: 2}}\n", []string{"1 unknown-field: spec.sice"}, check.Rejected},
		"a policy for the guessed resource":  {[]string{schemas}, byResource("widgets") + five, nil, check.Unknown},
		"a policy for another resource":      {[]string{schemas}, byResource("widgetry") + five, nil, check.Unknown},
		"a policy for all resources":         {[]string{schemas}, byResource("'*'") + five, []string{"10 denied/policy/p: "}, check.Rejected},
		"invalid, with a policy":             {[]string{schemas}, byResource("widgets") + "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 0}}\n", []string{"10 invalid: Invalid value: 0: spec.size"}, check.Rejected},
		"a policy for the resource of a CRD": {[]string{schemas, crds}, byResource("widgetry") + five, []string{"10 denied/policy/p: "}, check.Rejected},
		"a CRD of the files":                 {[]string{schemas}, strings.ReplaceAll(crd, "widgetry", "gizmos") + "---\n" + "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 10}}\n", []string{"11 invalid: Invalid value: 10: spec.size"}, check.Rejected},
	}
	for _, name := range speed.Some(t, 2, slices.Sorted(maps.Keys(cases))) {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			l, err := crdschema.Open(tc.locations, "1.37.2")
			if err != nil {
				t.Fatal(err)
			}
			o := check.Options{Set: written(t, "new.yaml", tc.files), Namespace: "default", Definitions: l}
			found, err := check.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, errorsOf(found), tc.want)
			if got := found.Objects[len(found.Objects)-1].Verdict; got != tc.verdict {
				t.Errorf("%s, want %s", got, tc.verdict)
			}
		})
	}
}
