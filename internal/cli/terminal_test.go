package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is in files and their names cannot act on a terminal or on the host of a job; JSON and
// SARIF have it as it is.
func TestOutputCannotAct(t *testing.T) {
	const name = "evil\x1b[2K\u202e\n::error::pwned\n##[error]x"
	dir := t.TempDir()
	quoted, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a\x1b[31m\n::warning::b.yaml")
	content := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":` + string(quoted) + `},"webhooks":[{"name":` + string(quoted) + `}]}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"lint", "check"} {
		out, problems, _ := execution(t.Context(), "", command, dir)
		if !strings.Contains(out, "evil") {
			t.Errorf("%s does not show the name: %s%s", command, out, problems)
		}
		for _, bad := range []string{"\x1b", "\u202e", "\n::", "##["} {
			if strings.Contains(out+problems, bad) {
				t.Errorf("%s prints %q: %q", command, bad, out+problems)
			}
		}
		exact, problems, _ := execution(t.Context(), "", command, dir, "-o", "json")
		var report any
		if err := json.Unmarshal([]byte(exact), &report); err != nil || !strings.Contains(exact, "\u202e") {
			t.Errorf("%s -o json is not exact: %v\n%s%s", command, err, exact, problems)
		}
	}
	_, problems, _ := execution(t.Context(), "", "lint", filepath.Join(dir, "none\x1b\n::error::"))
	if strings.ContainsAny(problems, "\x1b") || strings.Contains(problems, "\n::") {
		t.Errorf("an error prints %q", problems)
	}
}
