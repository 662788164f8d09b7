package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Each case has files, a command line and its output. The formats are tested in package report and the decisions in
// package predict/suite, so the ordinary run tries some of the cases.
func TestTestScenarios(t *testing.T) {
	const dir = "testdata/test"
	formats := []string{"output-github", "output-json", "output-junit", "output-sarif"}
	tools := []string{"gator", "gator-worlds", "kyverno"}
	// The case foreign has a suite of each tool. These take as long as ten others.
	slow := []string{"init-folder", "kaptest"}
	others := cases(t, dir, slices.Concat(formats, tools, slow)...)
	chosen := slices.Concat(speed.Some(t, few(1, formats), formats), speed.Some(t, few(1, tools), tools), speed.Some(t, few(5, others), others))
	if speed.IsLong() || *update {
		chosen = append(chosen, slow...)
	}
	scenarios(t, dir, chosen)
}

// An invalid command line exits with 2 and suggests a correction.
func TestTestRefusesWhatMeansNothing(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte("apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests:\n- name: a\n  request: {of: Pod a, operation: DELETE}\n  expect: {allowed: false}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"test", empty}, "there are no tests in " + empty},
		{[]string{"test", filepath.Join(dir, "missing")}, "missing: no such file or directory"},
		{[]string{"test", dir, "-o", "xml"}, `--output "xml" is not one of`},
		{[]string{"test", dir, "--run", "("}, "--run: error parsing regexp"},
		{[]string{"test", dir, "--run", "nothing"}, `--run "nothing" selects none of the tests`},
		{[]string{"test", dir, "--service-address", "a/b=c:1"}, "--service-address needs --call"},
	} {
		_, problems, code := execution(t.Context(), "", tc.args...)
		if code != command.ExitUsage || !strings.Contains(problems, tc.says) {
			t.Errorf("%q: exit %d, %q, want %q", tc.args, code, problems, tc.says)
		}
	}
	out, problems, code := execution(t.Context(), "", "test", "--list", dir)
	if code != command.ExitOK || out != good+":4: a\n" {
		t.Errorf("--list: exit %d, %q, %q", code, out, problems)
	}
}
