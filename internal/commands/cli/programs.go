package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/kubectl"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/serving"
	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
)

// Streams are the input and the outputs of a program.
type Streams = command.Streams

// Main runs the program with the given name and returns its exit code. The name is the last part of os.Args[0]
// or the value of $GATEHOUSE_PROGRAM. Any name except the supported programs runs gatehouse itself. An error is
// printed to streams.Err in one sentence.
func Main(ctx context.Context, args []string, streams Streams) int {
	switch command.ProgramName {
	case program.Etcd:
		serving.RunEtcd(ctx, args)
		return command.ExitOK
	case program.Kubectl:
		command.LeaveSignals(ctx)
		kubectl.Run(args, streams)
		return command.ExitOK
	case program.KubeAPIServer:
		return command.Execute(ctx, serving.NewKubeAPIServer, args, streams)
	}
	if len(args) > 2 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) && args[1] == program.Kubectl {
		// kubectl completes its command line itself.
		kubectl.Run(slices.Delete(slices.Clone(args), 1, 2), streams)
		return command.ExitOK
	}
	return command.Execute(ctx, newRoot, args, streams)
}
