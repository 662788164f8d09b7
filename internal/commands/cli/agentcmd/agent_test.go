package agentcmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// run executes a command and returns its output, its errors and its exit code.
func run(t *testing.T, root func(command.Streams) *cobra.Command, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = command.Execute(t.Context(), root, args, command.Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return o.String(), e.String(), code
}

// S32.20: the program of the agent names itself in its help, and has another process audit.
func TestTheProgram(t *testing.T) {
	help, _, code := run(t, NewProgram, "--help")
	if code != command.ExitOK || strings.Contains(help, "gatehouse agent --credentials") || strings.Contains(help, "--serve-audits string") ||
		!strings.Contains(help, "gatehouse-agent --credentials agent --webhook-kubeconfig") || !strings.Contains(help, "--audit-socket") {
		t.Errorf("exit %d\n%s", code, help)
	}
	for _, tt := range []struct {
		root func(command.Streams) *cobra.Command
		args []string
		want string
	}{
		{NewProgram, []string{"--audit-objects", "pods"}, "name the socket"},
		{NewProgram, []string{"--audit-objects", "pods", "--audit-socket", "s"}, "the process at the socket has the resources"},
		{NewProgram, []string{"--serve-audits", "s"}, "unknown flag --serve-audits"},
		{NewAgent, []string{"--audit-objects", "pods", "--audit-socket", "s"}, "the process at the socket has the resources"},
		{NewAgent, []string{"--serve-audits", "s"}, "name the resources to audit with --audit-objects"},
		{NewAgent, []string{"--serve-audits", "s", "--audit-objects", "secrets"}, "secrets are never read"},
	} {
		if _, errs, code := run(t, tt.root, tt.args...); code != command.ExitUsage || !strings.Contains(errs, tt.want) {
			t.Errorf("%q: exit %d, %q, want %q", tt.args, code, errs, tt.want)
		}
	}
}

// Both commands print the same rights.
func TestRightsOfBothPrograms(t *testing.T) {
	program, _, _ := run(t, NewProgram, "--rbac", "--audit-objects", "pods")
	agent, _, _ := run(t, NewAgent, "--rbac", "--audit-objects", "pods")
	if program != agent || !strings.Contains(agent, "- pods") {
		t.Errorf("the program prints\n%s\nthe subcommand\n%s", program, agent)
	}
}
