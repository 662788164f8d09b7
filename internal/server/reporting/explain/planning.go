package explain

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
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
	// storage is where the object would be stored; nil for none.
	storage rest.Storage
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
		q.options.Prepare, q.err = prepares(q.storage, a)
	}
	if q.plan == nil && q.err == nil {
		q.plan, q.err = p.engine.Plan(ctx, p.chain, a, o, q.options)
	}
	return errExplained
}

// prepares returns what the registry of a storage does to the object of a request.
func prepares(storage rest.Storage, a apiadmission.Attributes) (catalog.Prepare, error) {
	strategies := catalog.StrategiesOf(storage)
	if strategies.Create == nil {
		var err error
		if strategies, err = catalog.Builtin(a.GetResource()); err != nil {
			return nil, err
		}
	}
	return strategies.Prepare(a), nil
}

// Validate implements admission.ValidationInterface.
func (planning) Validate(context.Context, apiadmission.Attributes, apiadmission.ObjectInterfaces) error {
	return errExplained
}
