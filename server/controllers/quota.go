package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
)

// The work of the controller of quotas, as in a kube-controller-manager.
const (
	quotaWorkers = 5
	// recount is how often every quota is counted anew.
	recount = 5 * time.Minute
	// overlooked is how often quotas are looked for that were not counted, because the
	// controller did not know the kind yet.
	overlooked = 2 * time.Second
)

// countQuotas keeps the status of ResourceQuotas: the limits and the use.
func countQuotas(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	configuration, err := quotainstall.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(t.monitors.ForResource), t.informers)
	if err != nil {
		return nil, err
	}
	discover := client.Discovery().ServerPreferredNamespacedResources
	quotas := &quotaInformer{ResourceQuotaInformer: t.informers.Core().V1().ResourceQuotas()}
	c, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               client.CoreV1(),
		ResourceQuotaInformer:     quotas,
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
		quotas.remind,
	), nil
}

// quotaInformer tells the controller again of quotas that it could not count: a quota may
// be for a custom kind that is served and that the controller has not heard of. It would
// look again after recount.
type quotaInformer struct {
	coreinformers.ResourceQuotaInformer
	handler cache.ResourceEventHandler
}

// Informer implements coreinformers.ResourceQuotaInformer.
func (q *quotaInformer) Informer() cache.SharedIndexInformer {
	return listening{q.ResourceQuotaInformer.Informer(), q}
}

// remind works until ctx ends.
func (q *quotaInformer) remind(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, overlooked)
		list, err := q.Lister().List(labels.Everything())
		if err != nil {
			continue
		}
		for _, quota := range list {
			for name := range quota.Spec.Hard {
				if _, counted := quota.Status.Used[name]; !counted {
					q.handler.OnAdd(quota, false)
					break
				}
			}
		}
	}
}

// listening notes who listens.
type listening struct {
	cache.SharedIndexInformer
	by *quotaInformer
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (l listening) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, every time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	l.by.handler = h
	return l.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, every)
}
