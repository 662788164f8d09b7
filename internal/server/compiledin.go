package server

import (
	"fmt"
	"slices"

	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/quotas"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// knownPlugins lists every admission plugin there is, in the recommended order.
func knownPlugins() []admission.Known { return plugins.Order(admission.Recommended()) }

// checkConfigured returns an error if the configuration has an entry that configures
// nothing: there is no such plugin, or it does not run (S9.12).
func checkConfigured(configuration *admission.Configuration, running []string) error {
	for _, name := range configuration.Plugins() {
		switch {
		case slices.Contains(running, name):
		case slices.ContainsFunc(knownPlugins(), func(k admission.Known) bool { return k.Name == name }):
			return fmt.Errorf("plugin %q is configured and does not run: switch it on with --enable-admission-plugins=%[1]s, or remove its entry", name)
		default:
			return fmt.Errorf("plugin %q is configured and there is no plugin of that name: correct or remove its entry", name)
		}
	}
	return nil
}

// chargingPlugin is the plugin that charges quotas, with what plans and traces ask of it.
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

// charging has the plugin note what it charges.
func (p pluginParts) charging(plugin chargingPlugin) apiadmission.Interface {
	limits := quotas.Limits{Cached: p.self.informers.Core().V1().ResourceQuotas().Lister(), Stored: p.self.client.CoreV1()}
	return charged{p.fences.Charging(plugin, limits), plugin, plugin}
}

// compiledIn makes an admission plugin of kube-apiserver.
func compiledIn(name string) func(pluginParts) (apiadmission.Interface, error) {
	return func(p pluginParts) (apiadmission.Interface, error) {
		plugin, err := plugins.New(name, plugins.Options{
			Client: p.self.client, Informers: p.self.informers, Authorizer: p.authorizer, Mapper: p.self.mapper,
			Version: newEffectiveVersion(), Stopped: p.drained, Configuration: p.configuration.Raw,
			MakeAccount: p.makeAccount, Stored: catalog.StoredVersions(),
		})
		if err != nil || name != resourcequota.PluginName {
			return plugin, err
		}
		return p.charging(plugin.(chargingPlugin)), nil
	}
}
