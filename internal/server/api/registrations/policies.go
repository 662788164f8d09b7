package registrations

import (
	"k8s.io/apiserver/pkg/registry/generic/registry"
	mutatingpolicy "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy/storage"
	mutatingbinding "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding/storage"
	validatingpolicy "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy/storage"
	validatingbinding "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding/storage"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// HoldPolicies has the server answer writes of admission policies and of their bindings when
// these are in force, like writes of other registrations (S11.8, S20.7). A write of a policy or
// binding that refers to an object or kind that does not exist gets a warning (S20.9).
func HoldPolicies(kinds []catalog.Group, hold Hold, warn func(resource string) Warn) {
	for _, g := range kinds {
		if g.Name != Group {
			continue
		}
		for _, v := range g.Versions {
			for path, storage := range v.Storage {
				var store *registry.Store
				switch s := storage.(type) {
				case *validatingpolicy.REST:
					store = s.Store
				case *validatingbinding.REST:
					store = s.Store
				case *mutatingpolicy.REST:
					store = s.Store
				case *mutatingbinding.REST:
					store = s.Store
				default:
					// A status does not change which requests are judged.
					continue
				}
				v.Storage[path] = Held(store, hold, warn(path))
			}
		}
	}
}
