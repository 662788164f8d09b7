package fresh

import (
	"context"
	"time"
)

// hedgeAfter is how long a read may take before it is tried again beside it, and
// again: etcd's client sends each to another member, and a member that hangs must
// not make what is known old. When etcd was away and what it was asked is lost, the
// first try after its return is soon.
const hedgeAfter = 300 * time.Millisecond

// hedged calls read, and again beside it each time that hedgeAfter has passed. It
// returns the first result that is no error, or an error when all that were begun
// have failed.
func hedged[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	attempt := func() {
		value, err := read(ctx)
		select {
		case results <- result{value, err}:
		case <-ctx.Done():
		}
	}
	again := time.NewTicker(hedgeAfter)
	defer again.Stop()
	go attempt()
	for under := 1; ; {
		select {
		case r := <-results:
			if under--; r.err == nil || under == 0 {
				return r.value, r.err
			}
		case <-again.C:
			under++
			go attempt()
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
}
