package cli

import (
	"embed"
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// help has the help text of each command COMMAND SUBCOMMAND in the file help/COMMAND-SUBCOMMAND.txt.
//
//go:embed help
var help embed.FS

// helpTopics are commands without an action: cobra lists them separately and prints their text.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "Exit codes and their meaning"},
		{Use: "environment", Short: "Which environment variables are read"},
	}
}

// describe adds the help texts to a command and to its subcommands. name is the name of the file. A command without a
// file has only its short text.
func describe(cmd *cobra.Command, name string) {
	text, err := help.ReadFile("help/" + name + ".txt")
	switch {
	case err == nil:
		command.Describe(cmd, string(text))
	case !errors.Is(err, fs.ErrNotExist):
		panic("cli: an embedded help text cannot be read: " + err.Error())
	}
	for _, c := range cmd.Commands() {
		if cmd.HasParent() {
			describe(c, name+"-"+c.Name())
		} else {
			describe(c, c.Name())
		}
	}
}
