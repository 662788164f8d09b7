package registrations

import "github.com/gatehouse-dev/gatehouse/internal/server/api/stores"

// HoldPolicies delays the responses to writes of admission policies and of their bindings until the
// objects are active, like writes of other registrations (S11.8, S20.7). A write of a policy or binding
// that refers to an object or kind that does not exist gets a warning (S20.9). A write of a status does
// not change which requests match.
func HoldPolicies(groups []stores.Group, hold Hold, warn func(resource string) Warn) {
	for v := range stores.Versions(groups, Group) {
		for _, p := range policies() {
			if storage := v.Storage[p.Resource]; storage != nil {
				v.Storage[p.Resource] = served{Store: stores.RegistryOf(storage), hold: hold, warn: warn(p.Resource)}
			}
		}
	}
}
