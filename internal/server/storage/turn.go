package storage

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
)

// longList is the number of objects from which on a list waits for its turn. The copies of 1,000
// pods take 1.2 MiB.
const longList = 1000

// turn takes the turn of a request that is about to read a long list from the watch cache. It
// returns the options by which the request must read the list now. Lists by selectors have no
// turns: most of them are short.
func (o *opened) turn(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) (apistorage.ListOptions, error) {
	consistent := opts.ResourceVersion == ""
	switch {
	case !o.cached, !opts.Recursive, !opts.Predicate.Empty(), opts.Predicate.Continue != "",
		// The watch cache ignores the limit of a list at version 0.
		opts.Predicate.Limit > 0 && opts.ResourceVersion != "0",
		opts.ResourceVersionMatch != "" && opts.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan,
		consistent && !delegator.ConsistentReadSupported(), !inflight.HasTurns(ctx):
		return opts, nil
	}
	// A page with one object says how many there are.
	page := opts
	page.Predicate.Limit = 1
	if !consistent {
		page.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	if opts.ResourceVersion == "0" {
		page.ResourceVersion = "1"
	}
	first := reflect.New(reflect.TypeOf(list).Elem()).Interface().(runtime.Object)
	if err := o.GetList(ctx, key, page, first); err != nil {
		return opts, err
	}
	m, err := meta.ListAccessor(first)
	if err != nil {
		return opts, err
	}
	if consistent {
		// The cache has what etcd had when the request came. The request must not wait for that
		// again, since others wait for the end of its turn.
		opts.ResourceVersion, opts.ResourceVersionMatch = m.GetResourceVersion(), metav1.ResourceVersionMatchNotOlderThan
	}
	if more := m.GetRemainingItemCount(); more != nil && *more >= longList {
		inflight.TakeTurn(ctx)
	}
	return opts, nil
}
