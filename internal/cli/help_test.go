package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The help of a command says what it is for, and shows an example that works.
func TestEveryCommandHasHelpThatLeadsWithExamples(t *testing.T) {
	for _, cmd := range newRoot(Streams{}).Commands() {
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

func TestFlagsAreListedInSections(t *testing.T) {
	cmd := &cobra.Command{}
	addSection(cmd, "One", func(f *pflag.FlagSet) { f.Bool("b", false, ""); f.Bool("d", false, "") })
	addSection(cmd, "Two", func(f *pflag.FlagSet) { f.Bool("a", false, "") })
	cmd.Flags().Bool("c", false, "")
	var got []string
	for _, s := range flagSections(cmd.Flags()) {
		s.flags.VisitAll(func(f *pflag.Flag) { got = append(got, s.title+" "+f.Name) })
	}
	if want := "One b, One d, Two a, Flags c"; strings.Join(got, ", ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
