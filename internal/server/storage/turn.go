package storage

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
)

// longList is the number of objects from which a list waits for its turn. The copies of 1,000 pods
// take 1.2 MiB.
const longList = 1000

// selects reports whether a predicate selects only some of the objects.
func selects(p apistorage.SelectionPredicate) bool {
	if p.Field != nil && !p.Field.Empty() && len(p.Field.Requirements()) == 0 {
		// The selector leaves out objects that the reader need not copy.
		p.Field = fields.Everything()
	}
	return !p.Empty()
}

// turn waits for the turn of a request that is about to read a long list from the watch cache.
// Lists by selectors have no turns, because most of them are short, and consistent lists have none,
// because they may wait for etcd while they read.
func (o *opened) turn(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	switch {
	case o.cacher == nil, !opts.Recursive, selects(opts.Predicate), opts.Predicate.Continue != "",
		// The watch cache ignores the limit of a list at version 0.
		opts.Predicate.Limit > 0 && opts.ResourceVersion != "0",
		opts.ResourceVersionMatch != "" && opts.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan,
		opts.ResourceVersion == "", !inflight.HasTurns(ctx):
		return nil
	}
	// A page with one object has the number of all objects.
	page := opts
	page.Predicate.Limit, page.Predicate.Field = 1, fields.Everything()
	page.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	if opts.ResourceVersion == "0" {
		page.ResourceVersion = "1"
	}
	first := reflect.New(reflect.TypeOf(list).Elem()).Interface().(runtime.Object)
	if err := o.GetList(ctx, key, page, first); err != nil {
		return err
	}
	m, err := meta.ListAccessor(first)
	if err != nil {
		return err
	}
	if more := m.GetRemainingItemCount(); more != nil && *more >= longList {
		inflight.TakeTurn(ctx)
	}
	return nil
}
