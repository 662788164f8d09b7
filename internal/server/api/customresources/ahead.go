package customresources

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

// ahead returns an admission chain that calls do before next, for the requests of one operation. do
// refuses the request with an error.
func ahead(next admission.Interface, op admission.Operation, do func(admission.Attributes) error) admission.Interface {
	return admission.NewChainHandler(first{admission.NewHandler(op), do}, next)
}

type first struct {
	*admission.Handler
	do func(admission.Attributes) error
}

// Admit implements admission.MutationInterface.
func (f first) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return f.do(a)
}
