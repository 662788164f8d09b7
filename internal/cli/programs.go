package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/program"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// programName is the name that this program was started under. It is read once: kubectl's parts
// need os.Args changed.
var programName = startedAs()

func startedAs() string {
	name := program.Name()
	// It is not for the plugins that kubectl starts.
	os.Unsetenv(program.Variable)
	return name
}

// Main runs the program that a name stands for, the last part of os.Args[0] or the value of
// $GATEHOUSE_PROGRAM, with the arguments after it, and returns its exit code. It writes what went wrong to
// streams.Err, in one sentence. Every name but those of the programs that gatehouse
// stands in for means gatehouse itself.
func Main(ctx context.Context, args []string, streams Streams) int {
	switch programName {
	case program.Etcd:
		runEtcd(ctx, args)
		return exitOK
	case program.Kubectl:
		leaveSignals(ctx)
		runKubectl(args, streams)
		return exitOK
	case program.KubeAPIServer:
		return execute(ctx, newKubeAPIServer, args, streams)
	}
	return execute(ctx, newRoot, args, streams)
}

// leaveSignals gives the signals that end a process back to it: what runs from now on has its
// own handlers, or none. A signal that came before is sent again.
func leaveSignals(ctx context.Context) {
	context.AfterFunc(ctx, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) })
	signal.Reset(os.Interrupt, syscall.SIGTERM)
}

// execute runs a command and returns its exit code. What the command prints for people cannot
// act on their terminal, whatever the texts of clusters and files have.
func execute(ctx context.Context, command func(Streams) *cobra.Command, args []string, streams Streams) int {
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
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage)
	cmd, err := root.ExecuteContextC(ctx)
	return complain(cmd, err, streams)
}
