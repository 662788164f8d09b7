package fresh

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// hedgeAfter is how long a read may take before another attempt starts in parallel: etcd's client
// sends each attempt to another member, so that a member that hangs does not make the snapshot old.
// When etcd was not reachable and lost the request, an attempt follows soon after etcd is reachable
// again. There are maxAttempts at most: a caller that waits longer begins another read.
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
	again := time.NewTicker(hedgeAfter)
	defer again.Stop()
	var last result
	go attempt()
	for under, begun := 1, 1; ; {
		select {
		case r := <-results:
			if under--; r.err == nil || under == 0 {
				return r.value, noAnswer(r.err)
			}
			last = r
		case <-again.C:
			under++
			if begun++; begun == maxAttempts {
				again.Stop()
			}
			go attempt()
		case <-ctx.Done():
			if last.err == nil {
				last.err = ctx.Err()
			}
			return last.value, noAnswer(last.err)
		}
	}
}

// unanswered is an error of etcd that means only that etcd has not answered yet.
type unanswered struct{ error }

// Is implements the interface of package errors.
func (unanswered) Is(target error) bool { return target == snapshot.ErrUnanswered }

// Unwrap implements the interface of package errors.
func (u unanswered) Unwrap() error { return u.error }

// noAnswer marks an error of etcd after which another attempt may succeed soon. Errors about the request
// itself, and about a missing majority, are not changed.
func noAnswer(err error) error {
	if err == nil || etcd.IsNoMajority(err) {
		return err
	}
	if e := (rpctypes.EtcdError{}); errors.As(err, &e) {
		switch e.Code() {
		case codes.OutOfRange, codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition:
			return err
		}
	}
	return unanswered{err}
}
