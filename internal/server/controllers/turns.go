package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

const (
	// turnAtLeast and turnAtMost bound how long a quota is not counted again after an exact count.
	turnAtLeast, turnAtMost = 100 * time.Millisecond, 2 * time.Second
	// turnShare is how long a quota is not counted again after a count, as a multiple of the
	// count's duration. No charge passes while a quota is counted, so turnShare bounds the share of
	// time in which writes wait for counts.
	turnShare = 20
)

// turns collects requests for exact counts. If a quota is being counted or was counted a moment
// ago, the requests that come meanwhile are served by one later count.
type turns struct {
	queue workqueue.TypedDelayingInterface[types.NamespacedName]

	mu sync.Mutex
	// asked has the quotas that are being counted or were counted a moment ago, and whether a
	// request came since.
	asked map[types.NamespacedName]bool
}

func newTurns() *turns {
	return &turns{queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](), asked: map[types.NamespacedName]bool{}}
}

// begin reports whether a quota may be counted now; end must follow. Otherwise run calls count
// for the quota later.
func (t *turns) begin(id types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, counted := t.asked[id]
	t.asked[id] = counted
	return !counted
}

// end notes how long an exact count took, 0 if there was none.
func (t *turns) end(id types.NamespacedName, took time.Duration) {
	wait := time.Duration(0)
	if took > 0 {
		wait = min(max(took*turnShare, turnAtLeast), turnAtMost)
	}
	t.queue.AddAfter(id, wait)
}

// run calls count for each quota with a request, when its turn comes, until ctx ends.
func (t *turns) run(ctx context.Context, count func(types.NamespacedName)) {
	stop := context.AfterFunc(ctx, t.queue.ShutDown)
	defer stop()
	for {
		id, ended := t.queue.Get()
		if ended {
			return
		}
		t.mu.Lock()
		asked := t.asked[id]
		delete(t.asked, id)
		t.mu.Unlock()
		if asked {
			count(id)
		}
		t.queue.Done(id)
	}
}
