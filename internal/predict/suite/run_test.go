package suite

import (
	"os"
	"path/filepath"
	"testing"
)

// run runs the tests of a file, which is written to a directory of its own.
func run(t *testing.T, text string) *Report {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := Find([]string{file}, false)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Options{Set: set})
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
`)
	for _, r := range report.Tests {
		if r.Status != Passed {
			t.Errorf("%s: %s %s %+v", r.Name, r.Status, r.Message, r.Failures)
		}
	}
	if len(report.Tests) != 2 {
		t.Errorf("%d tests", len(report.Tests))
	}
}
