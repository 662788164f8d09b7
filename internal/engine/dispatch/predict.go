package dispatch

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
)

// Prediction is a request that is only planned, with the Input of its plan.
type Prediction struct {
	// Attributes are the attributes of the request, with a copy of its object, which the plan may
	// change.
	Attributes admission.Attributes
	Request    plan.Request
	// Input has the objects and the functions that change them. The caller sets the other
	// fields.
	Input *plan.Input
}

// Predict prepares a plan of a request. It does not change the objects of the attributes. set
// returns the Objects of the plan. prepares reports whether the server prepares an object between
// the passes: it generates names.
func Predict(a admission.Attributes, schemas mutation.Schemas, prepares bool, set func(admission.Attributes) plan.Objects) *Prediction {
	var object runtime.Object
	if a.GetObject() != nil {
		object = a.GetObject().DeepCopyObject()
	}
	a = withObject(a, object)
	p := &Prediction{Attributes: a, Request: plan.NewRequest(a), Input: &plan.Input{Objects: set(a), Generates: prepares}}
	if s, ok := p.Input.Objects.(*objects.Set); ok {
		p.Input.Change, p.Input.Fork = changer(s, schemas), forker(s, schemas)
	}
	return p
}

// withObject returns a copy of attributes with another object.
func withObject(a admission.Attributes, object runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(object, a.GetOldObject(), a.GetKind(), a.GetNamespace(), a.GetName(), a.GetResource(),
		a.GetSubresource(), a.GetOperation(), a.GetOperationOptions(), a.IsDryRun(), a.GetUserInfo())
}
