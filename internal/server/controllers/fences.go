package controllers

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
)

// fencesPage is how many fences are read at a time.
const fencesPage = 500

// forgetFences returns a function that deletes the fences of deleted namespaces, including
// namespaces that were deleted while no server ran controllers. It must be called while a
// controller is made.
func (t *term) forgetFences() (func(context.Context), error) {
	fences := t.options.Fences
	if fences == nil {
		return func(context.Context) {}, nil
	}
	namespaces := t.informers.Core().V1().Namespaces()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	gone, err := namespaces.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if ns, err := cache.DeletionHandlingObjectToName(o); err == nil {
			queue.Add(ns.Name)
		}
	}})
	if err != nil {
		return nil, err
	}
	find := func(ctx context.Context) error {
		for after := ""; ; {
			names, err := fences.Namespaces(ctx, after, fencesPage)
			if err != nil || len(names) == 0 {
				return err
			}
			for _, name := range names {
				if _, err := namespaces.Lister().Get(name); apierrors.IsNotFound(err) {
					queue.Add(name)
				}
			}
			after = names[len(names)-1]
		}
	}
	// No namespace has an empty name. In the queue the empty name means all namespaces that were
	// deleted before.
	queue.Add("")
	return func(ctx context.Context) {
		defer queue.ShutDown()
		if !cache.WaitForCacheSync(ctx.Done(), gone.HasSynced) {
			return
		}
		survive.Work(ctx, queue, 1, func(ctx context.Context, name string) error {
			err := error(nil)
			if name == "" {
				err = find(ctx)
			} else {
				err = fences.Forget(ctx, name)
			}
			if err != nil && ctx.Err() == nil {
				klog.ErrorS(err, "Could not delete the fences of namespaces that are gone; will retry")
			}
			return err
		})
	}, nil
}
