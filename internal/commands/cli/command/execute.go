package command

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// Execute runs a command and returns its exit code. Its output is sanitised: texts of clusters and files cannot
// control the user's terminal.
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

// complain prints the error of a command in one sentence and returns its exit code.
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

// Refuse prints an error and ends the command with ExitUsage, although the command line is correct.
func Refuse(streams Streams, err error) error {
	terminal.Fprintf(streams.Err, "gatehouse: %s\n", terminal.Indented(err.Error(), "  "))
	return ExitStatus(ExitUsage)
}

// KnownCommand rejects an unknown command and suggests the nearest one.
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

// Group makes cmd a group of commands. Without a subcommand it prints its help.
func Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args = KnownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(commands...)
	return cmd
}

// Describe gives a command its help text. After a line "Examples:", the text has examples.
func Describe(cmd *cobra.Command, text string) {
	long, examples, _ := strings.Cut(text, "\nExamples:\n")
	cmd.Long, cmd.Example = strings.Trim(long, "\n"), strings.Trim(examples, "\n")
}

// NoArgs rejects arguments like cobra.NoArgs, with a UsageError.
func NoArgs(cmd *cobra.Command, args []string) error { return AtMost(0)(cmd, args) }

// AtMost rejects more than n arguments with a UsageError.
func AtMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return Usagef("unexpected argument %q", args[n])
		}
		return nil
	}
}

// Exactly rejects any other number of arguments with a UsageError that asks for the missing arguments.
func Exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return Usagef("name %s", what)
		}
		return nil
	}
}

// FlagError turns an error of the flag parser into a UsageError. For an unknown flag it suggests the nearest
// flag.
func FlagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if allowed := notAllowed(nil); errors.As(err, &invalid) && errors.As(err, &allowed) {
		return OneOf(invalid.GetFlag().Name, invalid.GetValue(), allowed...)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return UsageError{Err: err}
	}
	// Users of kubectl try these flags.
	switch name := unknown.GetSpecifiedName(); {
	case (name == "f" || name == "filename") && strings.Contains(cmd.Use, "PATH"):
		return Usagef("files and directories are arguments here, without -f: %s PATH", cmd.CommandPath())
	case name == "kubeconfig" && cmd.Flags().Lookup("from-cluster") != nil:
		return Usagef("--from-cluster names the kubeconfig of the cluster: %s --from-cluster FILE", cmd.CommandPath())
	case unknown.GetSpecifiedShortnames() != "":
		return UsageError{Err: err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := unknown.GetSpecifiedName()
	suggestion := nearest.Suggestion("--", name, names)
	if note := UpstreamNote(name); note != "" && cmd.Name() == "serve" {
		return Usagef("unknown flag --%s%s; of kube-apiserver's flag: %s (docs/reference/flags-of-kube-apiserver.md)", name, suggestion, note)
	}
	return Usagef("unknown flag --%s%s", name, suggestion)
}
