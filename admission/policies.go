package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/dispatch"
	"github.com/gatehouse-dev/gatehouse/admission/mutation"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Params has the objects that admission policies refer to.
type Params = plan.Params

// Schemas has the schemas of the kinds that mutating admission policies change.
type Schemas = mutation.Schemas

// policyPlugin runs the policies of one source.
type policyPlugin struct {
	source    registration.Source
	snapshots Snapshots
	policies  *dispatch.Policies
}

func (p *policyPlugin) acts() *registration.Descriptor { return p.source.Descriptor() }

// Handles implements admission.Interface.
func (p *policyPlugin) Handles(admission.Operation) bool { return true }

// validatingPolicies puts the policies of a source into the validating pass.
type validatingPolicies struct{ policyPlugin }

var _ admission.ValidationInterface = (*validatingPolicies)(nil)

// Validate judges a request. One that no rule of a policy in force matches costs no
// allocation.
func (p *validatingPolicies) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	s, err := acquire(ctx, p.snapshots, p.source, a)
	if s == nil {
		return err
	}
	request := plan.NewRequest(a)
	candidates := plan.Candidates(s, p.source, &request, o.GetEquivalentResourceMapper())
	if len(candidates) == 0 {
		return nil
	}
	kept := request
	return p.policies.Validate(ctx, a, o, s, &kept, candidates)
}

// mutatingPolicies puts the policies of a source into the mutating pass.
type mutatingPolicies struct{ policyPlugin }

var _ admission.MutationInterface = (*mutatingPolicies)(nil)

// Handles implements admission.Interface. A deletion has no object to change (S18.1).
func (p *mutatingPolicies) Handles(o admission.Operation) bool { return o != admission.Delete }

// Admit changes the object of a request. A request that no rule of a policy in force
// matches costs no allocation.
func (p *mutatingPolicies) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	s, err := acquire(ctx, p.snapshots, p.source, a)
	if s == nil {
		return err
	}
	request := plan.NewRequest(a)
	candidates := plan.Candidates(s, p.source, &request, o.GetEquivalentResourceMapper())
	if len(candidates) == 0 {
		return nil
	}
	kept := request
	return p.policies.Mutate(ctx, a, o, s, &kept, candidates)
}

// MutatingPolicies returns the plugin that evaluates MutatingAdmissionPolicies, in the
// mutating pass. Every call returns the same.
func (e *Engine) MutatingPolicies() admission.MutationInterface { return &e.mutatingPolicies }

// ValidatingPolicies returns the plugin that evaluates ValidatingAdmissionPolicies, in the
// validating pass. Every call returns the same.
func (e *Engine) ValidatingPolicies() admission.ValidationInterface { return &e.validatingPolicies }

// policies makes what runs the policies of a source.
func (e *Engine) policies(source registration.Source) (*dispatch.Policies, error) {
	return dispatch.NewPolicies(dispatch.PolicyOptions{
		Source:          source,
		NamespaceLabels: e.namespaceLabels,
		Namespace:       e.namespace,
		Params:          e.options.Params,
		Schemas:         e.options.Schemas,
		Authorizer:      e.options.Authorizer,
		Skips:           e.options.Skips,
		Publisher:       e.publisher,
	})
}

// namespace returns a namespace with all that policies see of it (S17.5).
func (e *Engine) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if ns := e.options.Namespaces.Cached(name); ns != nil {
		return ns, nil
	}
	return e.options.Namespaces.Live(ctx, name)
}
