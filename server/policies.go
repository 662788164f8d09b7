package server

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/registry/generic/registry"
	mutatingpolicy "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy/storage"
	mutatingbinding "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding/storage"
	validatingpolicy "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy/storage"
	validatingbinding "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding/storage"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/server/catalog"
	"github.com/gatehouse-dev/gatehouse/server/registrations"
	"github.com/gatehouse-dev/gatehouse/server/replicas/v1alpha1"
)

// holdPolicies makes writes of admission policies and of their bindings be answered when
// they are in force, like those of other registrations (S11.8, S20.7).
//
// Who writes one that refers to something that does not exist is told so (S20.9).
func holdPolicies(kinds []catalog.Group, a *admitter) {
	for _, g := range kinds {
		if g.Name != registrations.Group {
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
					// A status changes nothing about who is judged.
					continue
				}
				v.Storage[path] = registrations.Held(store, a.hold, func(ctx context.Context, name string) []string {
					var warnings []string
					for _, p := range a.problems(ctx, path, name) {
						warnings = append(warnings, p.Message)
					}
					return warnings
				})
			}
		}
	}
}

// problems says what is wrong with a registration, by what this server judges requests by.
func (a *admitter) problems(ctx context.Context, resource, name string) []v1alpha1.Problem {
	s := a.refresher.Current()
	i := slices.IndexFunc(registration.Sources(), func(d registration.Descriptor) bool { return d.Resource == resource })
	if s == nil || i < 0 || !registration.Sources()[i].Policies && !registration.Sources()[i].Binds {
		return nil
	}
	entries := s.Entries(registration.Source(i))
	k := slices.IndexFunc(entries, func(e *snapshot.Entry) bool { return e.Configuration == name })
	if k < 0 {
		return nil
	}
	var list []v1alpha1.Problem
	for _, p := range a.engine.Problems(ctx, s, entries[k]) {
		list = append(list, v1alpha1.Problem(p))
	}
	return list
}
