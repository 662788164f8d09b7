package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lateinformer"
)

// The workers and intervals of the quota controller, as in a kube-controller-manager.
const (
	quotaWorkers = 5
	// recount is how often the controller counts every quota again.
	recount = 5 * time.Minute
	// overlooked is how often remind checks for quotas that were not counted, or counted too early.
	overlooked = 2 * time.Second
	// recountAt and recountLast are the numbers of checks after which an unchanged quota is counted
	// again.
	recountAt, recountLast = 1, 8
)

// measured are the kinds for which a quota counts more than the number of objects.
var measured = []schema.GroupVersionResource{
	{Version: "v1", Resource: "persistentvolumeclaims"},
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "services"},
	{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"},
}

// countQuotas maintains the status of ResourceQuotas: the limits and the use.
func countQuotas(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	// Uninitialized objects count, too (S11.36), and other controllers must not see them.
	kinds := &monitors{typed: t.all, whole: measured, objects: t.monitors.objects}
	configuration, err := quotainstall.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(kinds.ForResource), t.informers)
	if err != nil {
		return nil, err
	}
	discover := (&steady{ServerResourcesInterface: client.Discovery()}).ServerPreferredNamespacedResources
	quotas := &quotaInformer{ResourceQuotaInformer: t.informers.Core().V1().ResourceQuotas()}
	self, err := kubernetes.NewForConfig(t.loopback)
	if err != nil {
		return nil, err
	}
	exactly := &exactQuotas{ResourceQuotasGetter: client.CoreV1(), self: self.CoreV1(), monitors: kinds, term: t, turns: newTurns(), versions: map[schema.GroupResource]schema.GroupVersionResource{}}
	exact, err := quotainstall.NewQuotaConfigurationForControllers(exactly.lister, t.informers)
	if err != nil {
		return nil, err
	}
	exactly.registry = generic.NewRegistry(exact.Evaluators())
	forget, err := t.forgetFences()
	if err != nil {
		return nil, err
	}
	c, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               exactly,
		ResourceQuotaInformer:     quotas,
		ResyncPeriod:              controller.StaticResyncPeriodFunc(recount),
		InformerFactory:           exactly,
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
		func(ctx context.Context) { exactly.turns.run(ctx, quotas.recount) },
		forget,
	), nil
}

// quotaInformer sends the controller quotas again that it could not count, or may have counted too
// early. A quota may be for a custom kind that is served and that the controller has not discovered
// yet. And while the controller counts, a client may create an object that the informer does not
// have yet: the count then overwrites the charge that admission added for the object. Without
// quotaInformer, the controller would correct this only after recount.
type quotaInformer struct {
	coreinformers.ResourceQuotaInformer
	handler cache.ResourceEventHandler
}

// Informer implements coreinformers.ResourceQuotaInformer. It notes the handler of the controller.
func (q *quotaInformer) Informer() cache.SharedIndexInformer {
	return &lateinformer.Handled{
		SharedIndexInformer: q.ResourceQuotaInformer.Informer(),
		Wrap: func(h cache.ResourceEventHandler) cache.ResourceEventHandler {
			q.handler = h
			return h
		},
	}
}

// remind works until ctx ends.
func (q *quotaInformer) remind(ctx context.Context) {
	seen := map[types.UID]*unchanged{}
	for ctx.Err() == nil {
		sleep(ctx, overlooked)
		list, err := q.Lister().List(labels.Everything())
		if err != nil {
			continue
		}
		last := seen
		seen = make(map[types.UID]*unchanged, len(list))
		for _, quota := range list {
			u := last[quota.UID]
			if u == nil {
				u = &unchanged{}
			}
			seen[quota.UID] = u
			if u.look(quota.ResourceVersion) || !counted(quota) {
				q.handler.OnAdd(quota, false)
			}
		}
	}
}

// recount makes the controller count a quota, if the quota exists.
func (q *quotaInformer) recount(id types.NamespacedName) {
	if quota, err := q.Lister().ResourceQuotas(id.Namespace).Get(id.Name); err == nil {
		q.handler.OnAdd(quota, false)
	}
}

// counted reports whether the status has the use of all limited resources.
func counted(quota *corev1.ResourceQuota) bool {
	for name := range quota.Spec.Hard {
		if _, ok := quota.Status.Used[name]; !ok {
			return false
		}
	}
	return true
}

// unchanged counts the checks at which a quota had the same version.
type unchanged struct {
	version string
	looks   int
}

// look reports whether a quota is to be counted again: soon after it changed, and once more when a
// slow informer has caught up. A count that changes nothing writes nothing.
func (u *unchanged) look(version string) bool {
	if u.version != version {
		*u = unchanged{version: version}
		return false
	}
	u.looks++
	return u.looks == recountAt || u.looks == recountLast
}
