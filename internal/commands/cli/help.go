package cli

import (
	_ "embed"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed help_exit_codes.txt
var exitCodes string

//go:embed help_environment.txt
var environment string

// helpTopics are commands without an action: cobra lists them separately and prints their text.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "Exit codes and their meaning", Long: strings.TrimSpace(exitCodes)},
		{Use: "environment", Short: "Which environment variables are read", Long: strings.TrimSpace(environment)},
	}
}
