package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/spf13/cobra"
)

// The help of a command describes its purpose and has a working example.
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

// Every help text belongs to a command: a file whose command has another name would be lost.
func TestEveryHelpTextBelongsToACommand(t *testing.T) {
	var texts []string
	var collect func(cmd *cobra.Command)
	collect = func(cmd *cobra.Command) {
		texts = append(texts, cmd.Long)
		for _, c := range cmd.Commands() {
			collect(c)
		}
	}
	collect(newRoot(command.Streams{}))
	entries, err := help.ReadDir("help")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var cmd cobra.Command
		text, err := help.ReadFile("help/" + e.Name())
		if command.Describe(&cmd, string(text)); err != nil || cmd.Long == "" || !slices.Contains(texts, cmd.Long) {
			t.Errorf("help/%s: no command has this text (%v)", e.Name(), err)
		}
	}
}

// The usage of a command fits a terminal of 80 columns: lists of commands, flags, and the comments of examples.
// Example command lines may be longer.
func TestUsageFitsATerminal(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			check(c)
		}
		if !cmd.IsAvailableCommand() && cmd.HasParent() || cmd.DisableFlagParsing {
			return
		}
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := command.PrintUsage(cmd); err != nil {
			t.Fatal(err)
		}
		_, usage, _ := strings.Cut(out.String(), "\nUsage:\n")
		for line := range strings.Lines(cmd.Example) {
			if strings.HasPrefix(line, "  # ") {
				usage += strings.TrimSuffix(line, "\n") + "\n"
			}
		}
		for line := range strings.Lines(usage) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
	}
	check(newRoot(command.Streams{}))
}
