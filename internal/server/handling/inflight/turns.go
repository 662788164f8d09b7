package inflight

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// longLists are the turns of this process to prepare long lists. A list has a copy of each object
// from its read until its answer begins. Lists beyond the number of CPUs would not be ready
// sooner, and each would hold its copies meanwhile.
var longLists = places{limit: runtime.GOMAXPROCS(0)}

// turnPatience is how long a list waits for its turn. It then continues without one, so that slow
// lists delay other lists no longer than this.
const turnPatience = 5 * time.Second

type turnKey struct{}

// turn is the turn of one request. It is true while the request has a turn.
type turn struct{ atomic.Bool }

// WithTurns returns the context of a request that may take a turn, and a function that ends
// the turn. The function must be called, and may be called several times.
func WithTurns(ctx context.Context) (context.Context, func()) {
	t := &turn{}
	return context.WithValue(ctx, turnKey{}, t), func() {
		if t.CompareAndSwap(true, false) {
			longLists.give()
		}
	}
}

// HasTurns reports whether TakeTurn can take a turn.
func HasTurns(ctx context.Context) bool {
	t, ok := ctx.Value(turnKey{}).(*turn)
	return ok && !t.Load()
}

// TakeTurn waits until a request may prepare a long list. It waits for some seconds at most, and
// only for requests that prepare such lists, which themselves wait for no other request.
func TakeTurn(ctx context.Context) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok || t.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	if longLists.wait(ctx) {
		t.Store(true)
	}
}
