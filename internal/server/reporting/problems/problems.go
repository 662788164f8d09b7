package problems

import (
	"context"
	"math"
	"slices"
	"strings"

	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/expressioncost"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// Reporter finds problems of registrations. All fields must be set.
type Reporter struct {
	Engine *admission.Engine
	// Current returns the registrations that this server evaluates requests against; nil before the
	// first read.
	Current func() *snapshot.Snapshot
	// Namespaces are the namespaces of an informer.
	Namespaces corelisters.NamespaceLister
	// Costs estimates the costs of the expressions of policies.
	Costs *expressioncost.Estimator
}

// Warn implements registrations.Warn for a resource: it returns the warnings for the writer of a
// registration. The strategies of upstream give some of these warnings themselves, also in a dry
// run. Warn leaves these out, so that each warning is sent once.
func (r *Reporter) Warn(resource string) registrations.Warn {
	return func(ctx context.Context, name string) []string {
		var warnings []string
		for _, p := range r.Of(ctx, resource, name) {
			if !warnedByStrategy(resource, p.Code) {
				warnings = append(warnings, p.Message)
			}
		}
		return append(warnings, r.dangers(ctx, kindOf(resource), name)...)
	}
}

// warnedByStrategy reports whether the strategy of a resource has warned of a problem (D58, D59,
// D77).
func warnedByStrategy(resource, code string) bool {
	switch code {
	case admission.PolicyNotFound, admission.RepeatedVariable, admission.NoAuthorizer:
		return true
	case plan.ParamKindNotFound.String():
		return strings.HasSuffix(resource, "bindings")
	}
	return false
}

// Of returns the problems of a registration, in the version that this server enforces.
func (r *Reporter) Of(ctx context.Context, resource, name string) []v1alpha1.Problem {
	s, entry := r.policyEntry(resource, name)
	if entry == nil {
		return nil
	}
	var list []v1alpha1.Problem
	for _, p := range r.Engine.Problems(ctx, s, entry) {
		list = append(list, v1alpha1.Problem(p))
	}
	for _, c := range r.Costs.Of(entry) {
		if c.High() {
			list = append(list, v1alpha1.Problem{Code: highCost, Message: c.Message()})
		}
	}
	return list
}

// highCost is the code of an expression whose cost is half of its limit or more (S16.22).
const highCost = "HighCost"

// policyEntry returns the entry of a policy or binding that this server enforces, nil when there is
// none.
func (r *Reporter) policyEntry(resource, name string) (*snapshot.Snapshot, *snapshot.Entry) {
	s := r.Current()
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

// CostsOf returns the costs of the expressions of a policy.
func (r *Reporter) CostsOf(resource, name string) []v1alpha1.ExpressionCost {
	_, entry := r.policyEntry(resource, name)
	if entry == nil {
		return nil
	}
	return r.CostsOfEntry(entry)
}

// CostsOfEntry returns the costs of the expressions of a policy, which need not be active.
func (r *Reporter) CostsOfEntry(entry *snapshot.Entry) []v1alpha1.ExpressionCost {
	var list []v1alpha1.ExpressionCost
	for _, c := range r.Costs.Of(entry) {
		one := v1alpha1.ExpressionCost{Field: c.Field, Measured: number(c.Measured), Limit: number(c.Limit)}
		if c.WorstCase != nil {
			one.WorstCase = new(number(*c.WorstCase))
		}
		list = append(list, one)
	}
	return list
}

// number converts a cost to the integer type of the API.
func number(cost uint64) int64 { return int64(min(cost, math.MaxInt64)) }
