package customresources

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/klog/v2"
)

// establishAtOnce is called before the names of a CRD are written as accepted. If the CRD can be
// established then, and no other server has to serve it first, establishAtOnce serves it here and
// returns an established CRD: one write in place of two, each of which takes a whole CRD through a
// request. The caller calls undo if the write fails. A CRD that cannot be served is left to sync,
// which tries again, and a CRD with a conversion webhook to upstream's controller, which checks how
// the webhook is reached.
func (s *Server) establishAtOnce(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (_ *apiextensionsv1.CustomResourceDefinition, undo func()) {
	nothing := func() {}
	if s.options.EstablishDelay != nil || crd.DeletionTimestamp != nil || established(crd) ||
		!apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) ||
		crd.Spec.Conversion != nil && crd.Spec.Conversion.Webhook != nil {
		return crd, nothing
	}
	stop, err := s.serve(ctx, crd)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("A CustomResourceDefinition is not established yet: it cannot be served", "name", crd.Name, "err", err)
		return crd, nothing
	}
	crd = crd.DeepCopy()
	apihelpers.SetCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
		Type:    apiextensionsv1.Established,
		Status:  apiextensionsv1.ConditionTrue,
		Reason:  "InitialNamesAccepted",
		Message: "the initial names have been accepted",
	})
	return crd, stop
}
