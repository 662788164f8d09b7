package inflight

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// patches bounds the memory of this process for users' patches that are being applied. A single patch of the
// maximum body size that consists of empty lists needs less than half of it.
var patches = budget{limit: 512 << 20}

// TakePatch reserves memory for a patch of the user of a context while the patch is applied. The result releases the
// memory and may be called several times. A user has no more than what remains for all other users: the error is 429.
// Members of system:masters are not refused (S27.12).
func TakePatch(ctx context.Context, bytes int64) (give func(), err error) {
	return patches.patch(ctx, bytes)
}

func (b *budget) patch(ctx context.Context, bytes int64) (give func(), err error) {
	name := ""
	if u, ok := request.UserFrom(ctx); ok {
		name = u.GetName()
	}
	if !b.take(name, bytes) {
		if master, _ := rank(ctx); !master {
			return nil, apierrors.NewTooManyRequests("too many bytes of patches are being applied, please try again later", 1)
		}
		b.takeAnyway(name, bytes)
	}
	return sync.OnceFunc(func() { b.give(name, bytes) }), nil
}
