package resources

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// keeper gives the objects of updates the stored metadata.initializers before the chain judges
// them, so that plugins see the object that will be stored, and again after the mutating pass.
// Objects that are sent and not stored, such as a Binding, whose annotations the pod gets, have
// no such field (S11.41).
type keeper struct {
	admission.Interface
	// unstored reports whether creates store another object than the one that is sent.
	unstored bool
}

// storesNothing reports whether what a request creates at the endpoint is not what
// was sent: subresources, and reviews and bindings, which cannot be read.
func (e *Endpoint) storesNothing(info *request.RequestInfo) bool {
	_, readable := e.Storage.(rest.Getter)
	return info.Verb == "create" && (info.Subresource != "" || !readable)
}

var (
	_ admission.MutationInterface   = keeper{}
	_ admission.ValidationInterface = keeper{}
)

// Handles implements admission.Interface.
func (k keeper) Handles(o admission.Operation) bool {
	return o == admission.Update || o == admission.Create && k.unstored || k.Interface.Handles(o)
}

// Admit implements admission.MutationInterface.
func (k keeper) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	k.keep(a)
	if chain, ok := k.Interface.(admission.MutationInterface); ok && chain.Handles(a.GetOperation()) {
		if err := chain.Admit(ctx, a, o); err != nil {
			return err
		}
	}
	k.keep(a)
	return nil
}

// Validate implements admission.ValidationInterface.
func (k keeper) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if chain, ok := k.Interface.(admission.ValidationInterface); ok && chain.Handles(a.GetOperation()) {
		return chain.Validate(ctx, a, o)
	}
	return nil
}

func (k keeper) keep(a admission.Attributes) {
	obj, old := a.GetObject(), a.GetOldObject()
	if k.unstored && a.GetOperation() == admission.Create && obj != nil && initializers.Has(obj) {
		initializers.Set(obj, nil)
	}
	if a.GetOperation() != admission.Update || obj == nil || old == nil {
		return
	}
	// The field of a stored object is valid: otherwise the object would not have been decoded.
	field, err := initializers.Get(old)
	if err == nil && (field != nil || initializers.Has(obj)) {
		initializers.Set(obj, field)
	}
}
