package server

import (
	"context"
	"math"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/registry/generic/registry"
	mutatingpolicy "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy/storage"
	mutatingbinding "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding/storage"
	validatingpolicy "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy/storage"
	validatingbinding "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding/storage"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// holdPolicies makes writes of admission policies and of their bindings be answered when
// they are in force, like those of other registrations (S11.8, S20.7).
//
// A write of one that refers to something that does not exist gets a warning (S20.9), once:
// of some of that the strategies warn, also in a dry run.
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
				v.Storage[path] = registrations.Held(store, a.inForce.Hold, func(ctx context.Context, name string) []string {
					var warnings []string
					for _, p := range a.problems(ctx, path, name) {
						if !toldByStrategy(path, p.Code) {
							warnings = append(warnings, p.Message)
						}
					}
					return append(warnings, a.dangers(ctx, kindOf(path), name)...)
				})
			}
		}
	}
}

// toldByStrategy tells whether the strategy of a resource has warned of a problem (D58, D59,
// D77).
func toldByStrategy(resource, code string) bool {
	switch code {
	case admission.PolicyNotFound, admission.RepeatedVariable, admission.NoAuthorizer:
		return true
	case plan.ParamKindNotFound.String():
		return strings.HasSuffix(resource, "bindings")
	}
	return false
}

// problems says what is wrong with a registration, by what this server judges requests by.
func (a *admitter) problems(ctx context.Context, resource, name string) []v1alpha1.Problem {
	s, entry := a.policyEntry(resource, name)
	if entry == nil {
		return nil
	}
	var list []v1alpha1.Problem
	for _, p := range a.engine.Problems(ctx, s, entry) {
		list = append(list, v1alpha1.Problem(p))
	}
	for _, c := range a.costs.Of(entry) {
		if c.High() {
			list = append(list, v1alpha1.Problem{Code: highCost, Message: c.Message()})
		}
	}
	return list
}

// highCost is the code of an expression whose cost is half of its limit or more (S16.22).
const highCost = "HighCost"

// policyEntry returns the entry of a policy or binding that this server judges requests by,
// nil when there is none.
func (a *admitter) policyEntry(resource, name string) (*snapshot.Snapshot, *snapshot.Entry) {
	s := a.refresher.Current()
	i := slices.IndexFunc(registration.Sources(), func(d registration.Descriptor) bool { return d.Resource == resource })
	if s == nil || i < 0 || !registration.Sources()[i].Policies && !registration.Sources()[i].Binds {
		return nil, nil
	}
	entry := s.Table(registration.Source(i)).Configuration(name)
	if entry == nil {
		return nil, nil
	}
	return s, entry
}

// expressionCosts says what the expressions of a policy cost.
func (a *admitter) expressionCosts(resource, name string) []v1alpha1.ExpressionCost {
	_, entry := a.policyEntry(resource, name)
	if entry == nil {
		return nil
	}
	var list []v1alpha1.ExpressionCost
	for _, c := range a.costs.Of(entry) {
		one := v1alpha1.ExpressionCost{Field: c.Field, Measured: number(c.Measured), Limit: number(c.Limit)}
		if c.WorstCase != nil {
			one.WorstCase = new(number(*c.WorstCase))
		}
		list = append(list, one)
	}
	return list
}

// number is a cost in the API.
func number(cost uint64) int64 { return int64(min(cost, math.MaxInt64)) }
