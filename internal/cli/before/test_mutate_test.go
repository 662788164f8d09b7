package before

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Of a pull request, the registrations are changed whose lines differ from the base: also those that lost
// lines, those of new files, and none of others (S24.31).
func TestChangedLines(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	write := func(name string, lines ...string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run("init", "--quiet", "--initial-branch=main")
	write("policies/a ä.yaml", "1", "2", "3", "4", "5", "6")
	write("policies/same.yaml", "1", "2")
	write("elsewhere.yaml", "1")
	run("add", ".")
	run("commit", "--quiet", "-m", "base")
	run("checkout", "--quiet", "-b", "change")
	write("policies/a ä.yaml", "1", "two", "3", "6")
	run("commit", "--quiet", "-am", "change")
	write("elsewhere.yaml", "one")
	write("policies/new.yaml", "1")
	write("elsewhere/new.yaml", "1")

	changed := lines{}
	if err := changed.since(t.Context(), "main", filepath.Join(dir, "policies")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		file        string
		first, last int
		want        bool
	}{
		{"policies/a ä.yaml", 1, 1, false},
		{"policies/a ä.yaml", 1, 2, true},
		{"policies/a ä.yaml", 3, 3, true},
		{"policies/a ä.yaml", 4, 9, false},
		{"policies/same.yaml", 1, 2, false},
		{"policies/new.yaml", 7, 8, true},
		{"elsewhere.yaml", 1, 1, true},
		{"elsewhere/new.yaml", 1, 1, true},
	} {
		if got := changed.any(filepath.Join(dir, tc.file), tc.first, tc.last); got != tc.want {
			t.Errorf("lines %d to %d of %s: %t, want %t: %v", tc.first, tc.last, tc.file, got, tc.want, changed)
		}
	}
	if err := (lines{}).since(t.Context(), "--output=x", dir); err == nil || !strings.Contains(err.Error(), "--output=x") {
		t.Errorf("a base that is an option: %v", err)
	}
}
