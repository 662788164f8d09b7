package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/emulation"
)

// run runs the tests of a file as of a release; empty for that of this program.
func run(t *testing.T, text, release string) *Report {
	t.Helper()
	return runWith(t, text, Options{Fields: emulation.FieldsOf(release)})
}

// runWith runs the tests of a file, which is written to a directory of its own.
func runWith(t *testing.T, text string, o Options) *Report {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if o.Set, err = Find([]string{file}, o.Call); err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// S24.6: a user that is bound to an aggregated role has the rights of the roles that it selects, as in a cluster,
// where a controller writes them into the role.
func TestAggregatedRolesGiveRights(t *testing.T) {
	report := run(t, `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionTests
authorize: true
tests:
- name: an editor writes
  request: {user: ada, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}}
  expect: {allowed: true}
- name: and gives nobody rights
  request: {user: ada, object: {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a, namespace: default}, rules: []}}
  expect: {allowed: false, by: {plugin: authorization}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}]
`, "")
	for _, r := range report.Tests {
		if r.Status != Passed {
			t.Errorf("%s: %s %s %+v", r.Name, r.Status, r.Message, r.Failures)
		}
	}
	if len(report.Tests) != 2 {
		t.Errorf("%d tests", len(report.Tests))
	}
}

// S26.12: a field that came after the release is unknown to a test of it, in a request and in the world.
func TestLaterFieldsAreUnknown(t *testing.T) {
	const begin = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests:\n"
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default}, spec: {evictionResponders: [{name: example.com/a}], containers: [{name: c, image: i}]}}"
	for _, tc := range []struct {
		name, release, text string
		status              Status
		message             string
	}{
		{"this release has the field", "", begin + "- {name: a, request: {object: " + pod + "}, expect: {allowed: true}}\n", Passed, ""},
		{"an older one does not", "v1.34.0", begin + "- {name: a, request: {object: " + pod + "}, expect: {allowed: false, code: 400, by: {plugin: api}, message: {contains: 'unknown field \"spec.evictionResponders\"'}}}\n", Passed, ""},
		{"who may not, learns that first", "v1.34.0", begin + "- {name: a, request: {user: ada, authorize: true, object: " + pod + "}, expect: {allowed: false, by: {plugin: authorization}}}\n", Passed, ""},
		{"nor may the world have it", "v1.34.0", begin + "- {name: a, request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}}, expect: {allowed: true}}\n---\n" + pod + "\n", Broken, "spec.evictionResponders: unknown field"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := run(t, tc.text, tc.release).Tests[0]
			if r.Status != tc.status || !strings.Contains(r.Message, tc.message) {
				t.Errorf("%s %q %+v", r.Status, r.Message, r.Failures)
			}
		})
	}
}
