package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// Streams are what a command reads and writes. Results go to Out, everything
// else to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// complain says what went wrong with a command, in one sentence, and returns its exit
// code.
func complain(cmd *cobra.Command, err error, streams Streams) int {
	if err != nil && err.Error() != "" {
		terminal.Fprintf(streams.Err, "%s: %s\n", cmd.Root().DisplayName(), terminal.Indented(err.Error(), "  "))
	}
	code := exitCode(err)
	if code == exitUsage {
		terminal.Fprintf(streams.Err, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
	return code
}

// The exit codes of gatehouse, as the help topic exit-codes says them.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	// exitRejected: explain --exit-code, for a request that would be rejected.
	exitRejected = 3
)

// exitStatus ends a command that has said everything with an exit code.
type exitStatus int

func (exitStatus) Error() string { return "" }

// exitCode is the only place where kinds of errors become exit codes.
func exitCode(err error) int {
	var status exitStatus
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, new(usageError)):
		return exitUsage
	default:
		return exitError
	}
}

// usageError is a mistake in the command line itself.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// doors are the commands by what a user comes for, in the order of the help.
var doors = []struct {
	title    string
	commands []func(Streams) *cobra.Command
}{
	{"Run a server", []func(Streams) *cobra.Command{newServe, newKubectl, newWebhook, newEnvtest}},
	{"Before a write", []func(Streams) *cobra.Command{newExplain, newCheck, newLint, newTest, newSnapshot}},
	{"After a write", []func(Streams) *cobra.Command{newTrace, newBlame, newConsole, newInitializers}},
	{"Change admission safely", []func(Streams) *cobra.Command{newRollout, newAudit, newRecord, newReplay, newWaitInForce}},
	{"Look after a server", []func(Streams) *cobra.Command{newBackup, newEtcd, newDebug, newVersion}},
}

func newRoot(streams Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "gatehouse",
		Short: "Dynamic admission control for Kubernetes-style APIs",
		Long: `Gatehouse is a Kubernetes API server whose admission you can extend while it
runs, by webhooks, policies and initializers, which are API objects. The
commands explain, lint, check and snapshot work with any Kubernetes cluster.`,
		Example: `  # start a server on this machine
  gatehouse serve

  # talk to it, from another terminal
  gatehouse kubectl get namespaces`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if isPlugin() {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gatehouse"}
	}
	for _, d := range doors {
		root.AddGroup(&cobra.Group{ID: d.title, Title: d.title})
		for _, command := range d.commands {
			added := command(streams)
			added.GroupID = d.title
			root.AddCommand(added)
		}
	}
	root.SetCompletionCommandGroupID(doors[len(doors)-1].title)
	root.AddCommand(helpTopics()...)
	return root
}

// isPlugin reports whether kubectl runs this program as its plugin, which goes by the name
// of the program. A plugin works on the cluster that kubectl works on.
func isPlugin() bool {
	return programName == "kubectl-gatehouse"
}

// knownCommand refuses an unknown command and names the nearest one.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usageError{fmt.Errorf("unknown command %q%s", args[0], nearest.Suggestion("", args[0], names))}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}
