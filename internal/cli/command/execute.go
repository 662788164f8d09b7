package command

import (
	"context"
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

// Execute runs a command and returns its exit code. What the command prints for people cannot
// act on their terminal, whatever the texts of clusters and files have.
func Execute(ctx context.Context, command func(Streams) *cobra.Command, args []string, streams Streams) int {
	out, errs := terminal.NewWriter(streams.Out), terminal.NewWriter(streams.Err)
	defer out.Flush()
	defer errs.Flush()
	streams.Out, streams.Err = out, errs
	root := command(streams)
	root.SetArgs(args)
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetFlagErrorFunc(FlagError)
	root.SetUsageFunc(PrintUsage)
	cmd, err := root.ExecuteContextC(ctx)
	return complain(cmd, err, streams)
}

// complain says what went wrong with a command, in one sentence, and returns its exit
// code.
func complain(cmd *cobra.Command, err error, streams Streams) int {
	if err != nil && err.Error() != "" {
		terminal.Fprintf(streams.Err, "%s: %s\n", cmd.Root().DisplayName(), terminal.Indented(err.Error(), "  "))
	}
	code := ExitCode(err)
	if code == ExitUsage {
		terminal.Fprintf(streams.Err, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
	return code
}

// The exit codes of gatehouse, as the help topic exit-codes says them.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
	// ExitRejected: explain --exit-code, for a request that would be rejected.
	ExitRejected = 3
)

// ExitStatus ends a command that has said everything with an exit code.
type ExitStatus int

// Error implements error. The text is empty: there is nothing more to say.
func (ExitStatus) Error() string { return "" }

// ExitCode is the only place where kinds of errors become exit codes.
func ExitCode(err error) int {
	var status ExitStatus
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, new(UsageError)):
		return ExitUsage
	default:
		return ExitError
	}
}

// UsageError is a mistake in the command line itself.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what the mistake is.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError with a text that fmt.Errorf formats.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// KnownCommand refuses an unknown command and names the nearest one.
func KnownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return Usagef("unknown command %q%s", args[0], nearest.Suggestion("", args[0], names))
}

// NoArgs refuses arguments, as cobra.NoArgs does, by a UsageError.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unexpected argument %q", args[0])
	}
	return nil
}
