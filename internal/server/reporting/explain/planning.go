package explain

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/question"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// planning replaces admission. It makes the plan of a chain and ends every request.
type planning struct {
	engine *admission.Engine
	chain  []admission.Plugin
}

var (
	_ apiadmission.MutationInterface   = planning{}
	_ apiadmission.ValidationInterface = planning{}
)

// planned is a request to explain, and its plan.
type planned struct {
	options admission.PlanOptions
	// storage is where the object would be stored; nil for none. may authorizes actions of the
	// caller.
	storage rest.Storage
	may     func(authorizer.AttributesRecord) (bool, error)
	plan    *plan.Plan
	// err is the reason why there is no plan although the request reached admission.
	err error
}

type questionKey struct{}

// errExplained ends a request that was explained.
var errExplained = apierrors.NewBadRequest("the request was explained, not made")

// Handles implements admission.Interface.
func (planning) Handles(apiadmission.Operation) bool { return true }

// Admit implements admission.MutationInterface.
func (p planning) Admit(ctx context.Context, a apiadmission.Attributes, o apiadmission.ObjectInterfaces) error {
	q := ctx.Value(questionKey{}).(*planned)
	if q.plan != nil || q.err != nil {
		return errExplained
	}
	if a.GetResource().Group != v1alpha1.SchemeGroupVersion.Group {
		q.options.Prepare = catalog.Prepares(q.storage, a)
		q.options.After, q.err = q.existing(ctx, a)
	}
	if q.err == nil {
		q.plan, q.err = p.engine.Plan(ctx, p.chain, a, o, q.options)
	}
	return errExplained
}

// existing returns the link of the object that already exists where a request would create one.
func (q *planned) existing(ctx context.Context, a apiadmission.Attributes) ([]plan.Link, error) {
	if group := a.GetResource().GroupResource(); catalog.Binds(group, a.GetSubresource()) || group.Resource == "pods" && a.GetSubresource() == "eviction" {
		return q.ofPod(ctx, a)
	}
	stored, ok := q.storage.(rest.Getter)
	if !ok || a.GetOperation() != apiadmission.Create || a.GetSubresource() != "" || a.GetName() == "" {
		return nil, nil
	}
	r, group := a.GetResource(), a.GetResource().GroupResource()
	allowed, err := q.may(authorizer.AttributesRecord{Verb: "get", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Namespace: a.GetNamespace(), Name: a.GetName()})
	switch {
	case err != nil:
		return nil, err
	case !allowed:
		err = apierrors.NewForbidden(group, a.GetName(), nil)
	default:
		_, err = stored.Get(ctx, a.GetName(), &metav1.GetOptions{})
	}
	return Existing(group, a.GetName(), err), nil
}

// ofPod returns a link if the binding or the eviction of a pod would be refused, because the pod does not exist,
// cannot get the node, or has a disruption budget.
func (q *planned) ofPod(ctx context.Context, a apiadmission.Attributes) ([]plan.Link, error) {
	if a.GetOperation() != apiadmission.Create {
		return nil, nil
	}
	allowed, err := q.may(authorizer.AttributesRecord{Verb: "get", APIVersion: "v1", Resource: "pods", Namespace: a.GetNamespace(), Name: a.GetName()})
	if err != nil {
		return nil, err
	}
	if !allowed {
		return Unbound(apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), nil)), nil
	}
	object, dry := a.GetObject().DeepCopyObject(), &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	status := apierrors.APIStatus(nil)
	switch binder := q.storage.(type) {
	case rest.Creater:
		if _, err = binder.Create(ctx, object, rest.ValidateAllObjectFunc, dry); !errors.As(err, &status) {
			// Preparing the object has already found the invalid fields.
			return nil, nil
		}
	case rest.NamedCreater:
		if _, err = binder.Create(ctx, a.GetName(), object, rest.ValidateAllObjectFunc, dry); err != nil && !errors.As(err, &status) {
			return []plan.Link{question.Refuses(plan.ValidationName, registration.ValidatingPass, err)}, nil
		}
	}
	return Unbound(err), nil
}

// Validate implements admission.ValidationInterface.
func (planning) Validate(context.Context, apiadmission.Attributes, apiadmission.ObjectInterfaces) error {
	return errExplained
}
