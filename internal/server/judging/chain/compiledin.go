package chain

import (
	"fmt"
	"slices"
	"strings"

	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/quotas"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// Known returns all admission plugins of the server, in the order in which they run by default.
func Known() []admission.Known { return plugins.Order(admission.Recommended()) }

// CheckConfigured returns an error if the configuration has an entry that configures
// nothing: there is no such plugin, or it does not run (S9.12).
func CheckConfigured(configuration *admission.Configuration, running []string) error {
	for _, name := range configuration.Plugins() {
		switch {
		case slices.Contains(running, name):
		case slices.ContainsFunc(Known(), func(k admission.Known) bool { return k.Name == name }):
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

// charging has the plugin note what it charges.
func (o Options) charging(plugin chargingPlugin) apiadmission.Interface {
	limits := quotas.Limits{Cached: o.Informers.Core().V1().ResourceQuotas().Lister(), Stored: o.Client.CoreV1()}
	return charged{o.Fences.Charging(plugin, limits), plugin, plugin}
}

// Hint says, after an error about unknown plugins, what to do with those of OpenShift among them. It is
// empty when there are none.
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
	return fmt.Sprintf("; leave out OpenShift's own plugins (%s), and use the policies, webhooks and initializers of examples/openshift instead", strings.Join(theirs, ", "))
}
