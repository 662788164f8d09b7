package kubectl

import (
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // credential plugins that a kubeconfig may use
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	componentcli "k8s.io/component-base/cli"
	componentlogs "k8s.io/component-base/logs"
	upstream "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// New returns the command gatehouse kubectl.
func New(streams command.Streams) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [flags and arguments of kubectl]",
		Short:              "Run the built-in kubectl",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			Run(args, streams)
			return nil
		},
	}
}

// Run runs kubectl in this process. It returns only after success: on failure, kubectl prints the error
// and exits.
func Run(args []string, streams command.Streams) {
	// An interrupt ends kubectl at once; its own handlers restore the terminal.
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	// The rest is kubectl's main function.
	_, _ = componentlogs.GlogSetter(upstream.GetLogVerbosity(args))
	if err := componentcli.RunNoErrOutput(newCommand(args, streams)); err != nil {
		kubectlutil.CheckErr(err)
	}
}

// newCommand returns kubectl's command tree. It changes os.Args and KUBECONFIG for kubectl, since parts of
// kubectl and its plugins read them directly.
func newCommand(args []string, streams command.Streams) *cobra.Command {
	os.Args = append([]string{"kubectl"}, args...)
	chosen := os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" || command.IsPlugin() || command.ProgramName == program.Kubectl
	missing := command.DefaultKubeconfig()
	// Without a kubeconfig of Gatehouse, kubectl uses the user's kubeconfig.
	usersKubeconfig := !chosen && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == ""
	// kubectl formats its output for the terminal itself.
	io := genericiooptions.IOStreams{In: streams.In, Out: terminal.Exact(streams.Out), ErrOut: terminal.Exact(streams.Err)}
	flags := genericclioptions.NewConfigFlags(true).
		WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50).
		WithWarningPrinter(io)
	announced := &announcement{flags: flags, err: streams.Err}
	flags.WithWrapConfigFn(func(c *restclient.Config) *restclient.Config {
		if usersKubeconfig && *flags.KubeConfig == "" && *flags.APIServer == "" {
			c.Wrap(func(next http.RoundTripper) http.RoundTripper { return announcing{announced, c.Host, next} })
		}
		if missing != nil && *flags.APIServer == "" && c.Host == command.UnnamedServer {
			c.Wrap(func(http.RoundTripper) http.RoundTripper { return refusal{missing} })
		}
		return c
	})
	root := upstream.NewDefaultKubectlCommandWithArgs(upstream.KubectlOptions{
		PluginHandler: pluginHandler{upstream.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes)},
		Arguments:     os.Args,
		ConfigFlags:   flags,
		IOStreams:     io,
	})
	replaceVersion(root, flags, io)
	checkFiles(root)
	return root
}

// pluginHandler finds plugins only through absolute entries of PATH. An entry such as "." would find a program
// in the working directory, which another user may have written.
type pluginHandler struct{ upstream.PluginHandler }

// Lookup implements upstream.PluginHandler.
func (h pluginHandler) Lookup(name string) (path string, found bool) {
	path, found = h.PluginHandler.Lookup(name)
	return path, found && filepath.IsAbs(path)
}

// refusal makes the first request end kubectl with the reason for the missing server. Commands without a
// server, such as --dry-run=client, still work.
type refusal struct{ reason error }

func (r refusal) RoundTrip(*http.Request) (*http.Response, error) {
	kubectlutil.CheckErr(r.reason)
	return nil, r.reason
}
