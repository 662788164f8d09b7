package storage

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// retriable is a decoder that takes no object for corrupt because its conversion has to wait:
// that error is the client's, who tries again.
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

// busyOr returns the 429 that an error wraps, else the error.
func busyOr(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) && apierrors.IsTooManyRequests(status) {
		return status
	}
	return err
}
