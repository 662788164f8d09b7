package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/compatibility"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/fresh"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/quotas"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// Options are the inputs of New. All except MakeAccount must be set.
type Options struct {
	// Names are the plugins that run, in their order.
	Names      []string
	Engine     *admission.Engine
	Authorizer authorizer.Authorizer
	// Client, Informers and Mapper reach the server itself.
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Mapper    meta.RESTMapper
	// Namespaces reads namespaces, and Creations counts the creates in each.
	Namespaces *fresh.Namespaces
	Creations  *namespaces.Creations
	// Fences keep quotas exact.
	Fences *quotas.Fences
	// Configuration configures the plugins, and Version is the release that they behave as.
	Configuration *admission.Configuration
	Version       compatibility.EffectiveVersion
	// MakeAccount makes the service account of a namespace; nil if no controller of this server
	// makes it.
	MakeAccount func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error)
	// Drained is closed when no more requests come.
	Drained <-chan struct{}
}

// New makes the plugins that the options name, in their order.
func New(o Options) ([]admission.Plugin, error) {
	list, err := o.Engine.Plugins(o.Names, o.pluginNamed)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(o.Names, admission.InitializersName) {
		list = slices.Insert(list, 0, admission.Plugin{Name: admission.InitializersName, Interface: initializers.Off{}})
	}
	return list, nil
}

// pluginNamed makes a plugin that does not use registrations, by its name. To add a plugin, add a row to
// the table of package plugins.
func (o Options) pluginNamed(name string) (apiadmission.Interface, error) {
	if name == admission.NamespaceLifecycleName {
		lifecycle := admission.NewNamespaceLifecycle(o.Namespaces)
		return predicted{o.Creations.Counting(lifecycle), lifecycle}, nil
	}
	plugin, err := plugins.New(name, plugins.Options{
		Client: o.Client, Informers: o.Informers, Authorizer: o.Authorizer, Mapper: o.Mapper,
		Version: o.Version, Stopped: o.Drained, Configuration: o.Configuration.Raw,
		MakeAccount: o.MakeAccount, Stored: catalog.StoredVersions(),
	})
	if err != nil || name != resourcequota.PluginName {
		return plugin, err
	}
	return o.charging(plugin.(chargingPlugin)), nil
}

// predicted is a plugin together with the Predictor of its verdicts.
type predicted struct {
	apiadmission.MutationInterface
	admission.Predictor
}

// KnownPlugins returns all admission plugins of the server, in the order in which they run by default.
func KnownPlugins() []admission.Known { return plugins.Order(admission.Recommended()) }

// CheckConfigured returns an error if the configuration has an entry that configures
// nothing: there is no such plugin, or it does not run (S9.12).
func CheckConfigured(configuration *admission.Configuration, running []string) error {
	for _, name := range configuration.Plugins() {
		switch {
		case slices.Contains(running, name):
		case slices.ContainsFunc(KnownPlugins(), func(k admission.Known) bool { return k.Name == name }):
			return fmt.Errorf("plugin %q is configured and does not run: switch it on with --enable-admission-plugins=%[1]s, or remove its entry", name)
		default:
			return fmt.Errorf("plugin %q is configured and there is no plugin of that name: correct or remove its entry", name)
		}
	}
	return nil
}

// chargingPlugin is the plugin that charges quotas, with its methods for plans and traces.
type chargingPlugin interface {
	apiadmission.ValidationInterface
	admission.Predictor
	admission.Described
}

type charged struct {
	apiadmission.ValidationInterface
	admission.Predictor
	admission.Described
}

// charging makes the plugin record the quota that it charges.
func (o Options) charging(plugin chargingPlugin) apiadmission.Interface {
	limits := quotas.Limits{Cached: o.Informers.Core().V1().ResourceQuotas().Lister(), Stored: o.Client.CoreV1()}
	return charged{o.Fences.Charging(plugin, limits), plugin, plugin}
}

// Hint returns advice about plugins of OpenShift among unknown plugins. It is empty when there are
// none.
func Hint(names []string) string {
	var theirs []string
	for _, name := range names {
		if name = strings.TrimSpace(name); plugins.OfOpenShift(name) {
			theirs = append(theirs, name)
		}
	}
	if len(theirs) == 0 {
		return ""
	}
	return fmt.Sprintf("; leave out OpenShift's own plugins (%s): examples/openshift has policies, webhooks and initializers for them", strings.Join(theirs, ", "))
}
