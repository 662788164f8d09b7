package cli

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"
)

// The help of a command says what it is for, and shows an example that works.
func TestEveryCommandHasHelpThatLeadsWithExamples(t *testing.T) {
	for _, cmd := range newRoot(command.Streams{}).Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "completion" {
			continue
		}
		t.Run(cmd.Name(), func(t *testing.T) {
			if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
				t.Errorf("short help %q: want a line without full stop", cmd.Short)
			}
			if cmd.Long == "" {
				t.Error("no paragraph of help")
			}
			if !strings.HasPrefix(cmd.Example, "  # ") || !strings.Contains(cmd.Example, "\n  gatehouse "+cmd.Name()) {
				t.Errorf("examples %q: want a comment above each command", cmd.Example)
			}
			for line := range strings.Lines(cmd.Long) {
				if len(line) > 81 {
					t.Errorf("line longer than a terminal: %q", line)
				}
			}
		})
	}
}
