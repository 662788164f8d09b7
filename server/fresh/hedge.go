package fresh

import (
	"context"
	"time"
)

// hedgeAfter is how long a read may take before another attempt starts next to
// it: etcd's client sends each attempt to another member, so that a member that hangs
// does not make the snapshot old. When etcd was away and lost the request, the first
// attempt after its return is soon. There are maxAttempts at most: they are further
// apart when a read may take longer.
const hedgeAfter, maxAttempts = 300 * time.Millisecond, 8

// hedged calls read, and starts another call each time that hedgeAfter has passed. It
// returns the first success, or the last error when all calls have failed or the
// context has ended.
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
	after := hedgeAfter
	if deadline, limited := ctx.Deadline(); limited {
		after = max(after, time.Until(deadline)/maxAttempts+1)
	}
	again := time.NewTicker(after)
	defer again.Stop()
	var last result
	go attempt()
	for under := 1; ; {
		select {
		case r := <-results:
			if under--; r.err == nil || under == 0 {
				return r.value, r.err
			}
			last = r
		case <-again.C:
			under++
			go attempt()
		case <-ctx.Done():
			if last.err == nil {
				last.err = ctx.Err()
			}
			return last.value, last.err
		}
	}
}
