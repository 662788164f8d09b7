package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/internal/files"
)

// cluster is the server that a command works on.
type cluster struct {
	flags *genericclioptions.ConfigFlags
}

// newCluster adds the flags to a command that say which server is meant. They are
// those of kubectl.
func newCluster(cmd *cobra.Command) *cluster {
	c := &cluster{flags: genericclioptions.NewConfigFlags(true)}
	addSection(cmd, "Server", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.StringVar(c.flags.KubeConfig, "kubeconfig", "", "kubeconfig of the server (default as for 'gatehouse kubectl')")
		f.StringVar(c.flags.Context, "context", "", "context in the kubeconfig")
		f.StringVarP(c.flags.Namespace, "namespace", "n", "", "namespace (default that of the context)")
	})
	completes(cmd, "context", contextNames(c.flags.KubeConfig))
	completes(cmd, "namespace", func() []string { return c.objectNames(cmd)("namespaces") })
	return c
}

// open finds the kubeconfig. The error says in one sentence that there is none.
func (c *cluster) open() (*rest.Config, error) {
	missing := defaultKubeconfig()
	if err := readable(*c.flags.KubeConfig, *c.flags.Context); err != nil {
		return nil, err
	}
	config, err := c.flags.ToRESTConfig()
	if missing != nil && (clientcmd.IsEmptyConfig(err) || (err == nil && config.Host == unnamedServer)) && *c.flags.KubeConfig == "" {
		return nil, missing
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	config.UserAgent = "gatehouse"
	return config, nil
}

// objects returns a client for objects of all kinds, and the configuration that it was made with.
func (c *cluster) objects() (dynamic.Interface, *rest.Config, error) {
	config, err := c.open()
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(config)
	return client, config, err
}

// readable says that a client would wait for a file, or read it for ever: for the kubeconfig
// that is named or, if none is, those that the environment names, or for a file that its context
// names. What reads a file reports what else is wrong with it.
func readable(kubeconfig, context string) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	paths := rules.GetLoadingPrecedence()
	if kubeconfig != "" {
		paths = []string{kubeconfig}
	}
	if err := refused(paths...); err != nil {
		return err
	}
	if slices.ContainsFunc(paths, files.PassedOn) {
		// It can be read once.
		return nil
	}
	config, err := rules.Load()
	if err != nil {
		return nil
	}
	chosen := config.Contexts[cmp.Or(context, config.CurrentContext)]
	if chosen == nil {
		return nil
	}
	if cluster := config.Clusters[chosen.Cluster]; cluster != nil {
		paths = append(paths, cluster.CertificateAuthority)
	}
	if user := config.AuthInfos[chosen.AuthInfo]; user != nil {
		paths = append(paths, user.ClientCertificate, user.ClientKey, user.TokenFile)
	}
	return refused(paths...)
}

// refused returns why one of several files of a kubeconfig is not read.
func refused(paths ...string) error {
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := files.CheckArgument(path, files.Configuration); errors.As(err, new(files.Refused)) {
			return fmt.Errorf("kubeconfig: %w", err)
		}
	}
	return nil
}

// namespace is the one that was asked for, or that of the context.
func (c *cluster) namespace() (string, error) {
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// mapper knows the server's kinds, by all their names.
func (c *cluster) mapper() (meta.RESTMapper, error) {
	mapper, err := c.flags.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	if mapper == nil {
		return nil, errors.New("cannot read the kinds of the server")
	}
	return mapper, nil
}
