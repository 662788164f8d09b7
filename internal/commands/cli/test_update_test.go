package cli

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// An update writes the actual results into the files and keeps comments, order and everything else (S24.13).
func TestUpdateWritesWhatHappened(t *testing.T) {
	const before = `# Tests of nothing.
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionTests
world: []
tests:
# the first one
- name: b
  request:
    object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}} # an object
  expect:
    # why
    allowed: false # no longer
    message: {contains: x}
    by: {plugin: api}

# the second one passes
- name: a
  expect: {allowed: true,   code: 201}
  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}

- name: rows
  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: b}}}
  rows:
  - name: rejected
    set: {object.metadata.name: A_}
    expect:
      allowed: true
  - name: data
    expect:
      object:
        data: {a: c}
      allowed: true
`
	const after = `# Tests of nothing.
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionTests
world: []
tests:
# the first one
- name: b
  request:
    object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}} # an object
  expect:
    # why
    allowed: true # no longer

# the second one passes
- name: a
  expect: {allowed: true,   code: 201}
  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}

- name: rows
  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: b}}}
  rows:
  - name: rejected
    set: {object.metadata.name: A_}
    expect:
      allowed: false
      message: 'ConfigMap "A_" is invalid: metadata.name: Invalid value: "A_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, ''-'' or ''.'', and must start and end with an alphanumeric character (e.g. ''example.com'', regex used for validation is ''[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'')'
      by:
        plugin: api
  - name: data
    expect:
      object:
        data:
          a: b
      allowed: true
`
	t.Chdir(t.TempDir())
	if err := os.WriteFile("tests.yaml", []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, problems, code := execution(t.Context(), "", "test", "--update"); code != command.ExitOK {
		t.Fatalf("exit %d, %s%s", code, out, problems)
	}
	got, err := os.ReadFile("tests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, string(got)); diff != "" {
		t.Errorf("updated (-want +got):\n%s", diff)
	}
	if out, problems, code := execution(t.Context(), "", "test"); code != command.ExitOK {
		t.Errorf("exit %d after the update, %s%s", code, out, problems)
	}
}
