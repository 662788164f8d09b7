package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The shell completes rules, formats and contexts, also after a comma.
func TestValuesAreCompleted(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: production, context: {cluster: c}}, {name: preview, context: {cluster: c}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"lint", "--explain", "self-"}, []string{"self-deadlock"}},
		{[]string{"lint", "--disable", "self-deadlock,deadlock"}, []string{"self-deadlock,deadlock-cycle"}},
		{[]string{"lint", "-o", "git"}, []string{"github", "gitlab"}},
		{[]string{"check", "--missing-definitions", ""}, []string{"error", "warn", "skip"}},
		{[]string{"lint", "--kubeconfig", kubeconfig, "--context", "pr"}, []string{"preview", "production"}},
		{[]string{"blame", "--kubeconfig", kubeconfig, "--context", "pre"}, []string{"preview"}},
	} {
		out, problems, code := execution(t.Context(), "", append([]string{"__complete"}, c.args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := lines[:len(lines)-1]; code != exitOK || !slices.Equal(got, c.want) {
			t.Errorf("%q: exit %d, %q, want %q: %s", c.args, code, got, c.want, problems)
		}
	}
}
