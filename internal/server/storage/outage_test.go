package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// The error after a failure of etcd tells clients whether to retry: they may retry reads and
// refused writes, but not writes of unknown outcome or requests that used all their time.
func TestErrorsOfEtcdSayWhetherToTryAgain(t *testing.T) {
	lost := status.Error(codes.Unavailable, "keepalive ping failed to receive ACK within timeout")
	for _, c := range []struct {
		err                   error
		over                  bool
		read, write           int
		readAfter, writeAfter int
	}{
		{err: nil},
		{err: lost, read: 503, readAfter: 1, write: 504},
		{err: fmt.Errorf("create: %w", lost), read: 503, readAfter: 1, write: 504},
		{err: rpctypes.ErrTimeout, read: 503, readAfter: 1, write: 504},
		{err: rpctypes.ErrNoLeader, read: 503, readAfter: 1, write: 504},
		{err: rpctypes.ErrTooManyRequests, read: 429, readAfter: 1, write: 429, writeAfter: 1},
		{err: rpctypes.ErrNoSpace, read: 503, write: 503},
		{err: rpctypes.ErrCompacted},
		{err: context.DeadlineExceeded},
		{err: context.DeadlineExceeded, over: true, read: 504, write: 504},
		{err: fmt.Errorf("create: %w", context.DeadlineExceeded), over: true, read: 504, write: 504},
		{err: &refusal{apierrors.NewInternalError(errors.New("not now")), context.DeadlineExceeded}, over: true},
		{err: context.Canceled},
		{err: apistorage.NewKeyNotFoundError("/a", 1)},
		{err: errors.New("another")},
		// S11.11: admission could not read the registrations, because etcd failed.
		{err: &refusal{apierrors.NewInternalError(errors.New("not now")), lost}},
		{err: &refusal{apierrors.NewInternalError(errors.New("not now")), rpctypes.ErrTooManyRequests}},
	} {
		ctx := t.Context()
		if c.over {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 0)
			defer cancel()
		}
		for name, one := range map[string]struct {
			explain     func(context.Context, error) error
			code, after int
		}{"read": {explainRead, c.read, c.readAfter}, "write": {explainWrite, c.write, c.writeAfter}} {
			got := one.explain(ctx, c.err)
			if one.code == 0 {
				if !errors.Is(got, c.err) || got != nil && got.Error() != c.err.Error() {
					t.Errorf("%s: %v became %v", name, c.err, got)
				}
				continue
			}
			after, _ := apierrors.SuggestsClientDelay(got)
			var s apierrors.APIStatus
			if !errors.As(got, &s) || int(s.Status().Code) != one.code || after != one.after {
				t.Errorf("%s: %v became %#v, want %d %s, to try again after %d s", name, c.err, got, one.code, http.StatusText(one.code), one.after)
			}
		}
	}
}

// refusal is an API status with a cause.
type refusal struct {
	*apierrors.StatusError
	cause error
}

func (r *refusal) Unwrap() error { return r.cause }
