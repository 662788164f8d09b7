package kubectl

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	kubectlversion "k8s.io/kubectl/pkg/cmd/version"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// replaceVersion replaces kubectl's version command. The original reads the client version from a variable that
// only the build scripts of Kubernetes set, and fails without it.
func replaceVersion(root *cobra.Command, flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) {
	cmd, _, err := root.Find([]string{"version"})
	if err != nil {
		panic(err)
	}
	cmd.Run = func(cmd *cobra.Command, args []string) {
		if len(args) > 0 {
			kubectlutil.CheckErr(fmt.Errorf("extra arguments: %v", args))
		}
		clientOnly, _ := cmd.Flags().GetBool("client")
		output, _ := cmd.Flags().GetString("output")
		kubectlutil.CheckErr(printVersion(flags, streams, clientOnly, output))
	}
}

// printVersion prints versions in kubectl's formats.
func printVersion(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clientOnly bool, output string) error {
	v := kubectlversion.Version{ClientVersion: command.ClientVersion(command.CurrentVersion().Kubernetes)}
	v.KustomizeVersion, _ = kubectlversion.GetKustomizeModVersion()
	switch output {
	case "":
		// The client version is printed even if the server does not respond.
		terminal.Fprintf(streams.Out, "Client Version: %s\nKustomize Version: %s\n", v.ClientVersion.GitVersion, v.KustomizeVersion)
	case "json", "yaml":
	default:
		return errors.New("--output must be 'yaml' or 'json'")
	}
	var serverErr error
	if !clientOnly {
		var client discovery.CachedDiscoveryInterface
		if client, serverErr = flags.ToDiscoveryClient(); serverErr == nil {
			v.ServerVersion, serverErr = client.ServerVersion()
		}
	}
	if output == "" {
		if v.ServerVersion != nil {
			terminal.Fprintf(streams.Out, "Server Version: %s\n", v.ServerVersion.GitVersion)
		}
		return serverErr
	}
	text, err := command.Marshal(v, output)
	if err != nil {
		return err
	}
	if _, err := streams.Out.Write(text); err != nil {
		return err
	}
	return serverErr
}
