package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/temporary"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// Cluster is the cluster that a command works on.
type Cluster struct {
	// Flags are the kubeconfig flags of the command line.
	Flags KubeconfigFlags
}

// NewCluster adds the flags that select the server to a command. They are a subset of kubectl's flags.
func NewCluster(cmd *cobra.Command) *Cluster {
	c := &Cluster{}
	AddSection(cmd, "Server", func(f *pflag.FlagSet) {
		f.StringVar(&c.Flags.KubeConfig, "kubeconfig", "", "kubeconfig of the server (default as for 'gatehouse kubectl')")
		f.StringVar(&c.Flags.Context, "context", "", "context in the kubeconfig")
		f.StringVarP(&c.Flags.Namespace, "namespace", "n", "", "namespace (default from the context)")
	})
	Completes(cmd, "context", c.ContextNames)
	Completes(cmd, "namespace", func() []string { return c.ObjectNames(cmd)("namespaces") })
	return c
}

// Open reads the kubeconfig. Without a kubeconfig, the error is one sentence.
func (c *Cluster) Open() (*rest.Config, error) {
	missing := DefaultKubeconfig()
	if err := Readable(c.Flags.KubeConfig, c.Flags.Context); err != nil {
		return nil, err
	}
	config, err := c.Flags.Loader().ClientConfig()
	if missing != nil && (clientcmd.IsEmptyConfig(err) || (err == nil && config.Host == UnnamedServer)) && c.Flags.KubeConfig == "" {
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

// Arguments returns the flags that make another process of this program open the same cluster.
func (c *Cluster) Arguments() (args []string) {
	for flag, value := range map[string]string{"kubeconfig": c.Flags.KubeConfig, "context": c.Flags.Context} {
		if value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	return args
}

// AwaitOwner waits until the guarded process ends, removes its objects from the cluster, and prints said.
func (c *Cluster) AwaitOwner(streams Streams, said string, leave func(context.Context, *rest.Config) error) error {
	config, err := c.Open()
	if err != nil {
		return err
	}
	removed, err := temporary.AwaitOwner(terminal.Exact(streams.Out), func(ctx context.Context) error { return leave(ctx, config) })
	if removed && err == nil {
		terminal.Fprintf(streams.Err, "gatehouse: %s\n", said)
	}
	return err
}

// Objects returns a client for objects of all kinds, and the client's configuration.
func (c *Cluster) Objects() (dynamic.Interface, *rest.Config, error) {
	config, err := c.Open()
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(config)
	return client, config, err
}

// Readable returns an error if a client would block forever on a file of the kubeconfig, such as a named pipe.
// It checks the given kubeconfig or, if that is empty, the kubeconfigs of the environment, and the files that
// the context refers to. Other problems of a file are reported when the file is read.
func Readable(kubeconfig, context string) error {
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
		// A pipe can be read only once.
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

// refused returns an error about the first file that is refused.
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

// Namespace returns the namespace of the flags, or of the context.
func (c *Cluster) Namespace() (string, error) {
	namespace, _, err := c.Flags.Loader().Namespace()
	return namespace, err
}

// ContextNames returns the names of the contexts of the kubeconfig, for the completion of a shell.
func (c *Cluster) ContextNames() []string {
	if Readable(c.Flags.KubeConfig, "") != nil {
		return nil
	}
	config, _ := c.Flags.Loader().RawConfig()
	return slices.Sorted(maps.Keys(config.Contexts))
}

// KindNames returns the kinds of the cluster by the names that kubectl accepts. It returns none if the cluster
// does not respond in time.
func (c *Cluster) KindNames() []string {
	c.Flags.Timeout = completionTimeout.String()
	return inTime(c.readKinds)
}

func (c *Cluster) readKinds() []string {
	if _, err := c.Open(); err != nil {
		return nil
	}
	client, err := c.Flags.Discovery()
	if err != nil {
		return nil
	}
	resources, _ := Served(client, "get")
	names := map[string]bool{}
	for _, r := range resources {
		name := r.Resource
		if names[name] {
			name = r.GroupResource().String()
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// ObjectNames returns a function that lists the names of the objects of a kind in the namespace of the command
// line. The list is empty if the cluster does not respond in time.
func (c *Cluster) ObjectNames(cmd *cobra.Command) func(kind string) []string {
	return func(kind string) []string {
		c.Flags.Timeout = completionTimeout.String()
		return inTime(func() []string { return c.readNames(cmd.Context(), kind) })
	}
}

func (c *Cluster) readNames(ctx context.Context, kind string) []string {
	// The shell completes from ordinary reads.
	client, _, err := c.Objects()
	if err != nil {
		return nil
	}
	namespace, err := c.Namespace()
	if err != nil {
		return nil
	}
	mapper, err := c.Flags.Mapper()
	if err != nil {
		return nil
	}
	found, err := ResourceNamed(mapper, kind)
	if err != nil {
		return nil
	}
	list, err := found.Of(client, namespace).List(ctx, metav1.ListOptions{Limit: mostCompleted})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}

// Resource is a resource of a server.
type Resource struct {
	schema.GroupVersionResource
	// Namespaced reports whether the resource is namespaced.
	Namespaced bool
}

// ResourceNamed returns the resource for a name given by a user: a plural, a singular or a short name.
func ResourceNamed(mapper meta.RESTMapper, name string) (Resource, error) {
	gvr, err := mapper.ResourceFor(schema.ParseGroupResource(strings.ToLower(name)).WithVersion(""))
	if err != nil {
		return Resource{}, err
	}
	kind, err := mapper.KindFor(gvr)
	if err != nil {
		return Resource{}, err
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return Resource{}, err
	}
	return Resource{mapping.Resource, mapping.Scope.Name() == meta.RESTScopeNameNamespace}, nil
}

// Served returns the resources of a server that support a verb. It omits groups whose discovery fails.
func Served(client discovery.DiscoveryInterface, verb string) ([]Resource, error) {
	groups, err := client.ServerPreferredResources()
	if len(groups) == 0 && err != nil {
		return nil, err
	}
	var list []Resource
	for _, g := range groups {
		gv, err := schema.ParseGroupVersion(g.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range g.APIResources {
			if slices.Contains(r.Verbs, verb) && !strings.Contains(r.Name, "/") {
				list = append(list, Resource{gv.WithResource(r.Name), r.Namespaced})
			}
		}
	}
	return list, nil
}

// Of returns a client for the resource. namespace is ignored for a cluster-scoped resource.
func (r Resource) Of(client dynamic.Interface, namespace string) dynamic.ResourceInterface {
	if r.Namespaced {
		return client.Resource(r.GroupVersionResource).Namespace(namespace)
	}
	return client.Resource(r.GroupVersionResource)
}
