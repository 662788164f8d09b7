package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
)

// Kinds that no file defines come from other locations. A test is not judged if a policy of its environment depends on a
// guessed resource.
func TestKindsThatAreDefinedElsewhere(t *testing.T) {
	const (
		schema = `{"type": "object", "properties": {"spec": {"type": "object", "additionalProperties": false, "properties": {"size": {"type": "integer"}}}}}`
		tests  = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionTests
tests:
- {name: valid, request: {object: {apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: default}, spec: {size: 1}}}, expect: {allowed: true}}
- {name: invalid, request: {object: {apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: default}, spec: {size: x}}}, expect: {allowed: false, code: 422}}
`
		policy = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}]}
  validations: [{expression: "true"}]
`
	)
	path := filepath.Join(t.TempDir(), "widget_v1.json")
	if err := os.WriteFile(path, []byte(schema), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		text, says string
		status     Status
	}{
		"a schema":                  {tests, "", Passed},
		"a policy for the resource": {tests + policy, "the resource widgets of Widget is a guess, so it is unknown whether p applies", Broken},
	} {
		l, err := crdschema.Open([]string{filepath.Join(filepath.Dir(path), "{{.ResourceKind}}_{{.ResourceAPIVersion}}.json")}, "1.37.2")
		if err != nil {
			t.Fatal(err)
		}
		report := runWith(t, tc.text, Options{Definitions: l})
		for _, r := range report.Tests {
			if r.Status != tc.status || !strings.Contains(r.Message, tc.says) {
				t.Errorf("%s: %s is %s: %s %+v", name, r.Name, r.Status, r.Message, r.Failures)
			}
		}
		if len(report.Tests) != 2 || !strings.Contains(strings.Join(report.Notes, "\n"), "Widget of example.com comes from a JSON schema") {
			t.Errorf("%s: %d tests, notes %q", name, len(report.Tests), report.Notes)
		}
	}
}
