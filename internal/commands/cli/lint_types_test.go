package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// lint reports type errors of expressions: in files with file, line and column, in a cluster without a
// position, and in files over a cluster by the kinds of both. lint and check have the same messages.
func TestLintReportsTypes(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "check", "types.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	policy, definition, _ := strings.Cut(string(archive.Files[1].Data), "---\n")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	both := write("both.yaml", policy+"---\n"+definition)
	alone := write("alone.yaml", policy)
	address := clusterOfTests(t)
	apply(t, address.Admin, definition)
	type found struct {
		Rule, Message, Field, File string
		Line, Column               int
	}
	run := func(args ...string) (list []found) {
		out, problems, code := execution(t.Context(), "", append([]string{"lint", "-o", "json"}, args...)...)
		if code != command.ExitOK {
			t.Errorf("%q: exit %d, %s", args, code, problems)
		}
		var report struct{ Findings []found }
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, f := range report.Findings {
			if f.Rule == "expression-types" {
				list = append(list, f)
			}
		}
		return list
	}
	want := func(file string, placed bool, custom bool) (list []found) {
		const prefix = "the expression does not fit the types: "
		add := func(field, message string, line, column int) {
			f := found{Rule: "expression-types", Message: prefix + message, Field: field, File: file}
			if placed {
				f.Line, f.Column = line, column
			}
			list = append(list, f)
		}
		both := "Deployment of apps/v1: "
		if custom {
			add("spec.validations[0].expression", "Thing of example.com/v1: undefined field 'replicas' at 1:12 of the expression", 10, 17)
			both = "Deployment of apps/v1 and Thing of example.com/v1: "
		}
		add("spec.validations[1].expression", "Deployment of apps/v1: undefined field 'replica' at 1:12 of the expression", 11, 17)
		add("spec.validations[1].messageExpression", both+"undefined field 'nam' at 1:24 of the expression", 12, 24)
		return list
	}
	for _, tc := range []struct {
		what string
		args []string
		want []found
	}{
		{"files", []string{both}, want(both, true, true)},
		{"files without the definition", []string{alone}, want(alone, true, false)},
		{"files over a cluster with the definition", []string{alone, "--kubeconfig", address.Kubeconfig}, want(alone, true, true)},
		{"a rule that is off", []string{both, "--disable", "expression-types"}, nil},
	} {
		if diff := cmp.Diff(tc.want, run(tc.args...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.what, diff)
		}
	}
	apply(t, address.Admin, policy)
	if diff := cmp.Diff(want("", false, true), run("--kubeconfig", address.Kubeconfig)); diff != "" {
		t.Errorf("a cluster (-want +got):\n%s", diff)
	}
}
