package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// A folder from another author cannot make commands read files outside of the folder, by a link or by name
// (S24.36).
func TestFoldersDoNotShowOtherFiles(t *testing.T) {
	const (
		secret = "kind: [\nroot:TOPSECRET:19000:0:99999:7:::\napiVersion: TOPSECRET\n"
		config = "apiVersion: gatehouse.dev/v1alpha1\nkind: Configuration\n"
		object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
		tests  = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\nworld: []\ntests:\n"
	)
	for name, c := range map[string]struct {
		files map[string]string
		args  string
	}{
		"configuration of check":  {map[string]string{".gatehouse.yaml": "->../secret"}, "check a.yaml"},
		"configuration of lint":   {map[string]string{".gatehouse.yaml": "->../secret"}, "lint a.yaml"},
		"configuration of test":   {map[string]string{".gatehouse.yaml": "->../secret"}, "test ."},
		"a snapshot by link":      {map[string]string{".gatehouse.yaml": config + "check: {snapshot: s.json}\n", "s.json": "->../secret"}, "check a.yaml"},
		"a snapshot by name":      {map[string]string{".gatehouse.yaml": config + "check: {snapshot: ../secret}\n"}, "check a.yaml"},
		"an object of lint":       {map[string]string{"b.yaml": "->../secret"}, "lint ."},
		"patterns":                {map[string]string{".gatehouseignore": "->../secret"}, "lint ."},
		"tests":                   {map[string]string{"b-tests.yaml": "->../secret"}, "test ."},
		"an object of tests":      {map[string]string{"tests.yaml": tests + "- name: a\n  request: {object: ../secret}\n  expect: {allowed: true}\n"}, "test ."},
		"a linked object of test": {map[string]string{"tests.yaml": tests + "- name: a\n  request: {object: b.txt}\n  expect: {allowed: true}\n", "b.txt": "->../secret"}, "test ."},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			c.files["a.yaml"] = object
			repository(t, filepath.Join(dir, "repo"), c.files)
			if err := os.WriteFile("secret", []byte(secret), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Chdir("repo")
			out, problems, code := execution(t.Context(), "", strings.Fields(c.args)...)
			if said := out + problems; strings.Contains(said, "TOPSECRET") || !strings.Contains(said, "out of the working directory") || code == command.ExitOK {
				t.Errorf("exit %d: %s", code, said)
			}
		})
	}
}

// repository writes files, and a link for each text that begins with "->".
func repository(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		var err error
		if to, link := strings.CutPrefix(text, "->"); link {
			err = os.Symlink(to, filepath.Join(dir, name))
		} else {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Commands do not write outside of the folder through its links (S24.36).
func TestFoldersDoNotReplaceOtherFiles(t *testing.T) {
	const tests = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\nworld: []\ntests:\n- name: a\n" +
		"  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}\n  expect: {allowed: false}\n"
	dir := t.TempDir()
	repository(t, filepath.Join(dir, "repo"), map[string]string{
		"out.json": "->../victim", "tests.yaml": tests, "linked.yaml": "->kept.txt", "kept.txt": tests,
	})
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte(tests), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(dir, "repo"))
	for _, c := range []struct{ args, kept, says string }{
		{"test tests.yaml --coverage=out.json", victim, "leads to " + victim},
		{"test linked.yaml --update", "kept.txt", "linked.yaml is not updated: it is a link to kept.txt"},
		{"test out.json --update", victim, "it is a link to ../victim"},
	} {
		_, problems, code := execution(t.Context(), "", strings.Fields(c.args)...)
		if data, err := os.ReadFile(c.kept); err != nil || string(data) != tests || code == command.ExitOK || !strings.Contains(problems, c.says) {
			t.Errorf("%s: exit %d, %s; the file has %q, %v", c.args, code, problems, data, err)
		}
	}
}
