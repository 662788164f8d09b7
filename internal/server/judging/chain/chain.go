package chain

import (
	"context"
	"slices"

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

// Options are what New needs to make the plugins. All but MakeAccount must be set.
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
	// Configuration configures the plugins, and Version is the release as which they behave.
	Configuration *admission.Configuration
	Version       compatibility.EffectiveVersion
	// MakeAccount makes the service account of a namespace; nil if no controller of this
	// server does.
	MakeAccount func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error)
	// Drained is closed when no more requests come.
	Drained <-chan struct{}
}

// New makes the plugins that the options name, in their order.
func New(o Options) ([]admission.Plugin, error) {
	list, err := o.Engine.Plugins(o.Names, o.other)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(o.Names, admission.InitializersName) {
		list = slices.Insert(list, 0, admission.Plugin{Name: admission.InitializersName, Interface: initializers.Off{}})
	}
	return list, nil
}

// other makes a plugin that does not act on registrations, by its name. To add one, add a row
// to the table of package plugins.
func (o Options) other(name string) (apiadmission.Interface, error) {
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
