package command

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
)

// Completes has the shell complete the value of a flag. Values before a comma stay.
func Completes(cmd *cobra.Command, flag string, values func() []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
		before := given[:strings.LastIndex(given, ",")+1]
		return beginning(given, before, values()), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err)
	}
}

// beginning returns the values that begin with what is given, each after a prefix.
func beginning(given, prefix string, values []string) []string {
	var list []string
	for _, v := range values {
		if strings.HasPrefix(prefix+v, given) {
			list = append(list, prefix+v)
		}
	}
	return list
}

// CompletesArguments has the shell complete all arguments of a command.
func CompletesArguments(cmd *cobra.Command, values func() []string) {
	cmd.ValidArgsFunction = func(_ *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
		return beginning(given, "", values()), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompletesObject has the shell complete the first argument of a command, KIND/NAME.
func CompletesObject(cmd *cobra.Command, kinds func() []string, names func(kind string) []string) {
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, given string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if kind, _, ok := strings.Cut(given, "/"); ok {
			return beginning(given, kind+"/", names(kind)), cobra.ShellCompDirectiveNoFileComp
		}
		var list []string
		for _, kind := range beginning(given, "", kinds()) {
			list = append(list, kind+"/")
		}
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// Values are those of a flag that has a fixed set of them.
func Values(list ...string) func() []string { return func() []string { return list } }

// ContextNames are the contexts of the kubeconfig that a command would use.
func ContextNames(kubeconfig *string) func() []string {
	return func() []string {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = *kubeconfig
		if Readable(*kubeconfig, "") != nil {
			return nil
		}
		config, err := rules.Load()
		if err != nil {
			return nil
		}
		var names []string
		for name := range config.Contexts {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
}

// What the shell is offered of a cluster: it waits no longer than completionTimeout, and gets no more
// than mostCompleted names.
const (
	completionTimeout = 2 * time.Second
	mostCompleted     = 500
)

// inTime returns the values, or none when the time of the shell is over. Each request to the cluster ends
// in that time, too, but there may be several.
func inTime(values func() []string) []string {
	answer := make(chan []string, 1)
	go func() { answer <- values() }()
	select {
	case list := <-answer:
		return list
	case <-time.After(completionTimeout):
		return nil
	}
}

// KindNames are the kinds of the cluster, as kubectl takes them. There are none if the cluster does
// not answer in time.
func (c *Cluster) KindNames() []string {
	*c.Flags.Timeout = completionTimeout.String()
	return inTime(c.readKinds)
}

func (c *Cluster) readKinds() []string {
	if _, err := c.Open(); err != nil {
		return nil
	}
	client, err := c.Flags.ToDiscoveryClient()
	if err != nil {
		return nil
	}
	// A group that does not answer has no kinds.
	groups, _ := client.ServerPreferredResources()
	names := map[string]bool{}
	for _, g := range groups {
		gv, err := schema.ParseGroupVersion(g.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range g.APIResources {
			name := r.Name
			if names[name] {
				name = schema.GroupResource{Group: gv.Group, Resource: r.Name}.String()
			}
			if slices.Contains(r.Verbs, "get") && !strings.Contains(r.Name, "/") {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ObjectNames returns a function with the names of the objects of a kind, in the namespace that the
// command line names. There are none if the cluster does not answer in time.
func (c *Cluster) ObjectNames(cmd *cobra.Command) func(kind string) []string {
	return func(kind string) []string {
		*c.Flags.Timeout = completionTimeout.String()
		return inTime(func() []string { return c.readNames(cmd.Context(), kind) })
	}
}

func (c *Cluster) readNames(ctx context.Context, kind string) []string {
	// The shell offers what ordinary reads return.
	client, _, err := c.Objects()
	if err != nil {
		return nil
	}
	namespace, err := c.Namespace()
	if err != nil {
		return nil
	}
	mapper, err := c.Mapper()
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
