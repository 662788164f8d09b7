package after

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/initializer"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// NewInitializers returns the command gatehouse initializers.
func NewInitializers(streams command.Streams) *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "initializers",
		Short: "Show, complete and fail pending initializations",
	}, newInitializersList(streams), newInitializersWatch(streams), newInitializersComplete(streams), newInitializersFail(streams))
}

// initializersOptions are the common options of the subcommands of initializers.
type initializersOptions struct {
	cluster *command.Cluster
	// types are the selected resources; empty means all.
	types         []string
	allNamespaces bool
	output        string
	// object is TYPE/NAME, and name the initializer, for commands on one object.
	object, name string
	message      string
	reason       string
	code         int
}

func (o *initializersOptions) addAllNamespaces(cmd *cobra.Command) {
	command.AddSection(cmd, "Which objects", func(f *pflag.FlagSet) {
		f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "objects of all namespaces")
	})
}

// session is a connection to the server.
type session struct {
	mapper    meta.RESTMapper
	discovery discovery.DiscoveryInterface
	// all also returns uninitialized objects.
	all       dynamic.Interface
	namespace string
	host      string
}

func (o *initializersOptions) open() (*session, error) {
	config, err := o.cluster.Open()
	if err != nil {
		return nil, err
	}
	s := &session{host: config.Host}
	if s.namespace, err = o.cluster.Namespace(); err != nil {
		return nil, err
	}
	if o.allNamespaces {
		s.namespace = ""
	}
	if s.mapper, err = o.cluster.Flags.Mapper(); err != nil {
		return nil, err
	}
	if s.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Wrap(initializer.IncludeUninitialized)
	s.all, err = dynamic.NewForConfig(config)
	return s, err
}

// checkServed returns an error if the server has no initializers. A server with initializers serves their
// configurations or is Gatehouse, which may have that API version disabled.
func (s *session) checkServed() error {
	served, err := s.discovery.ServerResourcesForGroupVersion(configurations.GroupVersion().String())
	configurable := func(r metav1.APIResource) bool { return r.Name == configurations.Resource }
	if apierrors.IsNotFound(err) || (err == nil && !slices.ContainsFunc(served.APIResources, configurable)) {
		_, err = s.discovery.ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the server at %s is not Gatehouse, and has no initializers", s.host)
	}
	return err
}

// resources returns the resources of the given types, or all resources that support the verb.
func (s *session) resources(types []string, verb string) ([]command.Resource, error) {
	if len(types) == 0 {
		list, err := command.Served(s.discovery, verb)
		return slices.DeleteFunc(list, func(r command.Resource) bool { return r.Group == "extensions" }), err
	}
	var list []command.Resource
	for _, name := range types {
		r, err := command.ResourceNamed(s.mapper, name)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// selected opens the server, and returns the resources of the types or, without types, all resources that support the
// verb: with --all-namespaces also cluster-scoped ones.
func (o *initializersOptions) selected(verb string) (*session, []command.Resource, error) {
	s, err := o.open()
	if err == nil {
		err = s.checkServed()
	}
	if err != nil {
		return nil, nil, err
	}
	list, err := s.resources(o.types, verb)
	return s, slices.DeleteFunc(list, func(r command.Resource) bool { return !r.Namespaced && !o.allNamespaces && len(o.types) == 0 }), err
}

// find returns the object with the name TYPE/NAME.
func (s *session) find(ctx context.Context, object string) (*unstructured.Unstructured, dynamic.ResourceInterface, error) {
	kind, name, ok := strings.Cut(object, "/")
	if !ok || kind == "" || name == "" {
		return nil, nil, command.Usagef("%q is not of the form KIND/NAME, such as deployment/web", object)
	}
	list, err := s.resources([]string{kind}, "")
	if err != nil {
		return nil, nil, err
	}
	client := list[0].Of(s.all, s.namespace)
	obj, err := client.Get(ctx, name, metav1.GetOptions{})
	return obj, client, err
}

// waits returns the pending initializers of an object; ok is false for an initialized object.
func waits(obj *unstructured.Unstructured) (names []string, ok bool) {
	field, found, err := unstructured.NestedFieldNoCopy(obj.Object, "metadata", "initializers")
	if err != nil || !found || field == nil {
		return nil, false
	}
	list, _, _ := unstructured.NestedSlice(obj.Object, "metadata", "initializers", "pending")
	names = []string{}
	for _, entry := range list {
		m, _ := entry.(map[string]any)
		name, _ := m["name"].(string)
		names = append(names, name)
	}
	return names, true
}

// oneObject validates the arguments of commands on one object.
func (o *initializersOptions) oneObject(most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return command.Usagef("name an object, such as deployment/web")
		case len(args) > most:
			return command.Usagef("unexpected argument %q", args[most])
		}
		o.object = args[0]
		if len(args) > 1 {
			o.name = args[1]
		}
		return nil
	}
}
