package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// explainRead says of an error of etcd, which the library would answer with a bare
// 500, that the read may be tried again, and of one that comes from the end of the
// request's time that it does. Other errors stay as they are.
func explainRead(ctx context.Context, err error) error {
	if overtime(ctx, err) {
		return apierrors.NewTimeoutError("the storage did not answer within the time of the request", 0)
	}
	if code, ok := etcdCode(err); !ok || code != codes.Unavailable && code != codes.DeadlineExceeded {
		return refused(err)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: fmt.Sprintf("the storage does not answer, please try again later: %v", err),
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}}
}

// explainWrite is explainRead for writes. It may be that one was done of which etcd
// did not tell the outcome, so that nothing invites clients to send it again.
func explainWrite(ctx context.Context, err error) error {
	if code, ok := etcdCode(err); !overtime(ctx, err) && (!ok || code != codes.Unavailable && code != codes.DeadlineExceeded) {
		return refused(err)
	}
	return apierrors.NewTimeoutError(fmt.Sprintf("the storage did not answer; it may or may not have stored the change: %v", err), 0)
}

// overtime reports whether an error comes from the end of the request's time.
func overtime(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(apierrors.APIStatus))
}

// refused says of etcd's refusal of a request that it may be tried again.
func refused(err error) error {
	if _, ok := etcdCode(err); !ok {
		return err
	}
	switch {
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case errors.Is(err, rpctypes.ErrNoSpace):
		// This lasts for minutes at least: clients need not wait to say so.
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
			Message: fmt.Sprintf("the database of the storage is full: nothing was written, and only deletions are accepted until its administrator frees space: %v", err),
		}}
	default:
		return err
	}
}

// etcdCode returns the code of an error of etcd or of the connection to it. The end
// of a request's context is none, and neither is what says itself how to answer:
// admission judges updates and deletions inside the storage, and the cause of its
// refusal may be that etcd did not answer.
func etcdCode(err error) (codes.Code, bool) {
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, new(apierrors.APIStatus)) {
		return 0, false
	}
	if etcd := (rpctypes.EtcdError{}); errors.As(err, &etcd) {
		return etcd.Code(), true
	}
	if s, ok := status.FromError(err); ok {
		return s.Code(), true
	}
	return 0, false
}
