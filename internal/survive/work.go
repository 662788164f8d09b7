package survive

import (
	"context"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
)

// Work handles the items of a queue, by a number of goroutines, until ctx ends. An item whose handling
// returns an error is handled again after a while. Work ends the queue, and returns when all handling
// has ended.
func Work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], workers int, handle func(context.Context, T) error) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			defer utilruntime.HandleCrash()
			for item, ended := queue.Get(); !ended; item, ended = queue.Get() {
				if err := handle(ctx, item); err == nil || ctx.Err() != nil {
					queue.Forget(item)
				} else {
					queue.AddRateLimited(item)
				}
				queue.Done(item)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
}
