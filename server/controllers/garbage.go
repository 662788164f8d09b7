package controllers

import (
	"context"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// collectors is how many objects are looked at at once, as in a kube-controller-manager.
const collectors = 20

// collectGarbage deletes the objects whose owners are gone, and carries out the
// propagation policies of deletions.
func collectGarbage(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	const account = "generic-garbage-collector"
	objects, err := t.metadata(account)
	if err != nil {
		return nil, err
	}
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, objects, t.mapper, garbagecollector.DefaultIgnoredResources(), t.monitors, t.started)
	c, err := garbagecollector.NewComposedGarbageCollector(ctx, client, objects, t.mapper, graph)
	if err != nil {
		return nil, err
	}
	return together(
		func(ctx context.Context) { c.Run(ctx, collectors, lookAgain) },
		func(ctx context.Context) {
			t.everyKind(ctx, func(ctx context.Context) { c.Sync(ctx, client.Discovery(), lookAgain) })
		},
	), nil
}

// together runs several functions at the same time, and returns when all have.
func together(list ...func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		var running sync.WaitGroup
		for _, f := range list {
			running.Go(func() { f(ctx) })
		}
		running.Wait()
	}
}
