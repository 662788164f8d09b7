package resources

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// keeping returns an admission chain that gives the objects of updates the stored metadata.initializers before
// next evaluates them, so that plugins see the object that will be stored, and again after the mutating pass.
// Objects that are sent and not stored, such as a Binding, whose annotations the pod gets, have no such field
// (S11.41). unstored means that creates store another object than the sent one.
func keeping(next admission.Interface, unstored bool) admission.Interface {
	k := keeper{unstored}
	return admission.NewChainHandler(k, next, k)
}

type keeper struct{ unstored bool }

// storesNothing reports whether a create at the endpoint stores another object than the sent one,
// or none: creates of subresources, and of reviews and bindings, which cannot be read.
func (e *Endpoint) storesNothing(info *request.RequestInfo) bool {
	_, readable := e.Storage.(rest.Getter)
	return info.Verb == "create" && (info.Subresource != "" || !readable)
}

// Handles implements admission.Interface.
func (k keeper) Handles(o admission.Operation) bool {
	return o == admission.Update || o == admission.Create && k.unstored
}

// Admit implements admission.MutationInterface.
func (k keeper) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj, old := a.GetObject(), a.GetOldObject()
	if k.unstored && a.GetOperation() == admission.Create && obj != nil && initializers.Has(obj) {
		initializers.Set(obj, nil)
	}
	if a.GetOperation() != admission.Update || obj == nil || old == nil {
		return nil
	}
	// The field of a stored object is valid: otherwise the object would not have been decoded.
	field, err := initializers.Get(old)
	if err == nil && (field != nil || initializers.Has(obj)) {
		initializers.Set(obj, field)
	}
	return nil
}
