package registrations

import (
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// HoldPolicies delays the responses to writes of admission policies and of their bindings until the
// objects are active, like writes of other registrations (S11.8, S20.7). A write of a policy or binding
// that refers to an object or kind that does not exist gets a warning (S20.9). A write of a status does
// not change which requests match. storages are the storages of a version of the group by resource, and
// registryOf returns the registry of one.
func HoldPolicies(storages map[string]rest.Storage, registryOf func(rest.Storage) *genericregistry.Store, hold Hold, warn func(resource string) Warn) {
	for _, p := range policies() {
		if storage := storages[p.Resource]; storage != nil {
			storages[p.Resource] = served{Store: registryOf(storage), hold: hold, warn: warn(p.Resource)}
		}
	}
}
