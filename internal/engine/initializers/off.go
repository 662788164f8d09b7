package initializers

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

// Off replaces a disabled Plugin. It removes the field from the client's object, and from the
// stored object for the other plugins. An object that was left uninitialized is therefore complete
// after its next write (S11.3).
type Off struct{}

var _ admission.MutationInterface = Off{}

// Handles implements admission.Interface.
func (Off) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Admit implements admission.MutationInterface. It returns no error.
func (Off) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if obj := a.GetObject(); obj != nil && Has(obj) {
		Set(obj, nil)
	}
	if old := a.GetOldObject(); old != nil && Has(old) {
		Set(old, nil)
	}
	return nil
}
