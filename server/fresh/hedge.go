package fresh

import (
	"context"
	"time"
)

// hedgeAfter is how long a read may take before it is tried a second time: etcd's
// client sends the second one to another member, and a member that hangs must not
// make what is known old.
const hedgeAfter = 300 * time.Millisecond

// hedged calls read, and a second time beside it when it takes long. It returns
// the first result that is no error, or else the last error.
func hedged[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result, 2)
	attempt := func() {
		value, err := read(ctx)
		results <- result{value, err}
	}
	go attempt()
	timer := time.NewTimer(hedgeAfter)
	defer timer.Stop()
	select {
	case r := <-results:
		return r.value, r.err
	case <-timer.C:
	}
	go attempt()
	first := <-results
	if first.err == nil {
		return first.value, nil
	}
	second := <-results
	return second.value, second.err
}
