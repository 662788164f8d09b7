package bootstrap

import (
	"context"
	"errors"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	flowcontrolbootstrap "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/ensurer"
)

// fairnessInterval is how often the objects of priority and fairness are checked, as in
// kube-apiserver.
const fairnessInterval = time.Minute

// Fairness makes the default FlowSchemas and PriorityLevelConfigurations of a cluster. It keeps the
// changes of administrators, except to the mandatory objects, and removes objects of another release
// that this release does not have. It waits until the informers have listed the stored objects.
func (o *Objects) Fairness(ctx context.Context, known informers.SharedInformerFactory) error {
	kinds := known.Flowcontrol().V1()
	for _, synced := range []<-chan struct{}{
		kinds.FlowSchemas().Informer().HasSyncedChecker().Done(), kinds.PriorityLevelConfigurations().Informer().HasSyncedChecker().Done(),
	} {
		select {
		case <-synced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	client := o.Client.FlowcontrolV1()
	levels := ensurer.NewPriorityLevelConfigurationOps(client.PriorityLevelConfigurations(), kinds.PriorityLevelConfigurations().Lister())
	schemas := ensurer.NewFlowSchemaOps(client.FlowSchemas(), kinds.FlowSchemas().Lister())
	// A schema that is stored before its level would be reported as dangling.
	return errors.Join(
		ensurer.EnsureConfigurations(ctx, levels, flowcontrolbootstrap.SuggestedPriorityLevelConfigurations, ensurer.NewSuggestedEnsureStrategy[*flowcontrolv1.PriorityLevelConfiguration]()),
		ensurer.EnsureConfigurations(ctx, levels, flowcontrolbootstrap.MandatoryPriorityLevelConfigurations, ensurer.NewMandatoryEnsureStrategy[*flowcontrolv1.PriorityLevelConfiguration]()),
		ensurer.EnsureConfigurations(ctx, schemas, flowcontrolbootstrap.SuggestedFlowSchemas, ensurer.NewSuggestedEnsureStrategy[*flowcontrolv1.FlowSchema]()),
		ensurer.EnsureConfigurations(ctx, schemas, flowcontrolbootstrap.MandatoryFlowSchemas, ensurer.NewMandatoryEnsureStrategy[*flowcontrolv1.FlowSchema]()),
		ensurer.RemoveUnwantedObjects(ctx, schemas, slices.Concat(flowcontrolbootstrap.MandatoryFlowSchemas, flowcontrolbootstrap.SuggestedFlowSchemas)),
		ensurer.RemoveUnwantedObjects(ctx, levels, slices.Concat(flowcontrolbootstrap.MandatoryPriorityLevelConfigurations, flowcontrolbootstrap.SuggestedPriorityLevelConfigurations)),
	)
}

// KeepFairness checks these objects again every minute, until ctx ends.
func (o *Objects) KeepFairness(ctx context.Context, known informers.SharedInformerFactory) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := o.Fairness(ctx, known); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Cannot keep up the default FlowSchemas and PriorityLevelConfigurations; will retry")
		}
	}, fairnessInterval)
}
