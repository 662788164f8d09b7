package survive

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// An item whose handling failed is handled again, and Work ends with its context and the queue.
func TestWorkHandlesAnItemUntilItCan(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Millisecond))
	queue.Add("a")
	tries := 0
	Work(ctx, queue, 1, func(_ context.Context, item string) error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		end()
		return nil
	})
	if tries != 3 || queue.NumRequeues("a") != 0 || !queue.ShuttingDown() {
		t.Errorf("%d tries, %d more to come, ended: %v", tries, queue.NumRequeues("a"), queue.ShuttingDown())
	}
}
