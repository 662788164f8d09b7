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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// explainRead replaces an error of etcd, which k8s.io/apiserver would answer with a bare 500, by an
// error after which the client may retry the read. It replaces an error that comes from the end of
// the request's time by a timeout. Other errors stay as they are.
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

// explainWrite is explainRead for writes. etcd may have performed a write without reporting its
// outcome, so that the error does not ask clients to send the write again.
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

// refused turns etcd's refusal of a request into an error with which the client may retry.
func refused(err error) error {
	if _, ok := etcdCode(err); !ok {
		return err
	}
	switch {
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case errors.Is(err, rpctypes.ErrNoSpace):
		// This state lasts for minutes at least: the answer does not ask clients to retry after
		// some seconds.
		return apierrors.NewServiceUnavailable(fmt.Sprintf(
			"the database of the storage is full: nothing was written, and only deletions are accepted until its administrator frees space: %v", err))
	default:
		return err
	}
}

// etcdCode returns the code of an error of etcd or of the connection to it. ok is false for the end
// of a request's context, and for an error that is an API status itself: the storage calls
// admission for updates and deletions, and admission may refuse because etcd did not answer.
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

// retriable is a decoder that does not report an object as corrupt when its conversion could not
// get a turn: the client gets this error, 429, and retries.
type retriable struct{ etcd3.Decoder }

// Decode implements etcd3.Decoder.
func (r retriable) Decode(value []byte, into runtime.Object, revision int64) error {
	return busyOr(r.Decoder.Decode(value, into, revision))
}

// DecodeListItem implements etcd3.Decoder.
func (r retriable) DecodeListItem(ctx context.Context, data []byte, revision uint64, newItem func() runtime.Object) (runtime.Object, error) {
	obj, err := r.Decoder.DecodeListItem(ctx, data, revision, newItem)
	return obj, busyOr(err)
}

// busyOr returns the 429 that an error wraps, or else the error itself.
func busyOr(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) && apierrors.IsTooManyRequests(status) {
		return status
	}
	return err
}
