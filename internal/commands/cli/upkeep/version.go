package upkeep

import (
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// NewVersion returns the command gatehouse version.
func NewVersion(streams command.Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return command.PrintVersion(streams.Out, command.CurrentVersion(), output)
		},
	}
	command.Choose(cmd.Flags(), &output, "output", "o", "text", "text, json or yaml", "text", "json", "yaml")
	return cmd
}
