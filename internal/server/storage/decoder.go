package storage

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// retriable is a decoder that does not report an object as corrupt when its conversion could
// not get a turn: the client gets that error, 429, and tries again.
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
