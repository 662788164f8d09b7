package storage

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// noticed is a context that closes a channel when a goroutine begins to wait for its end.
type noticed struct {
	context.Context
	waits chan struct{}
	once  *sync.Once
}

func (n noticed) Done() <-chan struct{} {
	n.once.Do(func() { close(n.waits) })
	return n.Context.Done()
}

// S27.8: concurrent updates of one object are tried once each, with a watch cache and without.
// Without a line, each write makes all other updates read the object and try again.
func TestUpdatesOfOneObjectAreTriedOnce(t *testing.T) {
	f := newFactory(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, resource := range []string{"uncached", "cached"} {
		t.Run(resource, func(t *testing.T) {
			store := open(t, f, resource)
			key := "/" + resource + "/one"
			create(t, store, resource, "one")
			if resource == "cached" {
				if err := store.GetList(ctx, "/cached/", apistorage.ListOptions{Recursive: true, Predicate: everything()}, &corev1.ConfigMapList{}); err != nil {
					t.Fatal(err)
				}
			}
			const updates = 50
			var tries atomic.Int64
			begin := make(chan struct{})
			var group errgroup.Group
			for i := range updates {
				turn := noticed{ctx, make(chan struct{}), &sync.Once{}}
				begun := make(chan struct{})
				var once sync.Once
				group.Go(func() error {
					return store.GuaranteedUpdate(turn, key, &corev1.ConfigMap{}, false, nil, func(obj runtime.Object, _ apistorage.ResponseMeta) (runtime.Object, *uint64, error) {
						tries.Add(1)
						once.Do(func() { close(begun) })
						if i == 0 {
							<-begin
						}
						obj.(*corev1.ConfigMap).Data = map[string]string{"number": strconv.Itoa(i)}
						return obj, nil, nil
					}, nil)
				})
				if i == 0 {
					<-begun
				} else {
					<-turn.waits
				}
			}
			close(begin)
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			if n := tries.Load(); n != updates {
				t.Errorf("%d updates were tried %d times", updates, n)
			}
		})
	}
}
