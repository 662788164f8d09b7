package explain

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
)

// planning takes the place of admission. It makes the plan of a chain and ends every request.
type planning struct {
	engine *admission.Engine
	chain  []admission.Plugin
}

var (
	_ apiadmission.MutationInterface   = planning{}
	_ apiadmission.ValidationInterface = planning{}
)

// question is a request to explain, and its plan.
type question struct {
	options admission.PlanOptions
	plan    *plan.Plan
	// err is why there is no plan although the request came to admission.
	err error
}

type questionKey struct{}

// errExplained ends a request that was explained.
var errExplained = apierrors.NewBadRequest("the request was explained, not made")

// Handles implements admission.Interface.
func (planning) Handles(apiadmission.Operation) bool { return true }

// Admit implements admission.MutationInterface.
func (p planning) Admit(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	q := ctx.Value(questionKey{}).(*question)
	if q.plan == nil && q.err == nil {
		q.plan, q.err = p.engine.Plan(ctx, p.chain, a, o, q.options)
	}
	return errExplained
}

// Validate implements admission.ValidationInterface.
func (planning) Validate(context.Context, apiadmission.Attributes, apiadmission.ObjectInterfaces) error {
	return errExplained
}
