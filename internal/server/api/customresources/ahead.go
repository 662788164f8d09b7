package customresources

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

// ahead is admission with something that is done before it, for the requests of one operation.
type ahead struct {
	next admission.Interface
	op   admission.Operation
	// do refuses the request with an error.
	do func(admission.Attributes) error
}

func (h ahead) Handles(op admission.Operation) bool { return op == h.op || h.next.Handles(op) }

func (h ahead) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if a.GetOperation() == h.op {
		if err := h.do(a); err != nil {
			return err
		}
	}
	if next, ok := h.next.(admission.MutationInterface); ok && h.next.Handles(a.GetOperation()) {
		return next.Admit(ctx, a, o)
	}
	return nil
}

func (h ahead) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if next, ok := h.next.(admission.ValidationInterface); ok && h.next.Handles(a.GetOperation()) {
		return next.Validate(ctx, a, o)
	}
	return nil
}
