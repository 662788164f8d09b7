package controllers

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
)

// The work of the controller of quotas, as in a kube-controller-manager.
const (
	quotaWorkers = 5
	// recount is how often every quota is counted anew.
	recount = 5 * time.Minute
)

// countQuotas keeps the status of ResourceQuotas: what is allowed, and what is there.
func countQuotas(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	configuration, err := quotainstall.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(t.monitors.ForResource), t.informers)
	if err != nil {
		return nil, err
	}
	discover := client.Discovery().ServerPreferredNamespacedResources
	c, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               client.CoreV1(),
		ResourceQuotaInformer:     t.informers.Core().V1().ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(recount),
		InformerFactory:           t.monitors,
		ReplenishmentResyncPeriod: controller.NoResyncPeriodFunc,
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      configuration.IgnoredResources,
		InformersStarted:          t.started,
		Registry:                  generic.NewRegistry(configuration.Evaluators()),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, err
	}
	return together(
		func(ctx context.Context) { c.Run(ctx, quotaWorkers) },
		func(ctx context.Context) {
			t.everyKind(ctx, func(ctx context.Context) { c.Sync(ctx, discover, lookAgain) })
		},
	), nil
}
