package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/dispatch"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
)

// Params has the param objects of admission policies.
type Params = plan.Params

// Schemas has the schemas of the kinds that mutating admission policies change.
type Schemas = mutation.Schemas

// MutatingPolicies returns the plugin that evaluates MutatingAdmissionPolicies, in the mutating
// pass. Every call returns the same plugin.
func (e *Engine) MutatingPolicies() admission.MutationInterface { return &e.mutatingPolicies }

// ValidatingPolicies returns the plugin that evaluates ValidatingAdmissionPolicies, in the
// validating pass. Every call returns the same plugin.
func (e *Engine) ValidatingPolicies() admission.ValidationInterface { return &e.validatingPolicies }

// policies returns the runner of the policies of a source.
func (e *Engine) policies(source registration.Source) (runner, error) {
	policies := dispatch.NewPolicies(dispatch.PolicyOptions{
		Source:          source,
		NamespaceLabels: e.namespaceLabels,
		Namespace:       e.namespace,
		Params:          e.options.Params,
		Schemas:         e.options.Schemas,
		Authorizer:      e.options.Authorizer,
		Skips:           e.options.Skips,
		Publisher:       e.publisher,
	})
	if source.Descriptor().Pass == registration.MutatingPass {
		return policies.Mutate, nil
	}
	return policies.Validate, nil
}

// namespace returns a namespace for the variable namespaceObject of policies (S17.5).
func (e *Engine) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if ns := e.options.Namespaces.Cached(name); ns != nil {
		return ns, nil
	}
	return e.options.Namespaces.Live(ctx, name)
}
