package revisionmark

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// Mark is a key that records the last write below its prefixes: its value is the written key, and
// its revision is the revision of the write. Each write is a version of the mark.
type Mark struct {
	// Key is the mark itself. It must not be below any mark's prefix.
	Key string
	// Prefixes end with a slash.
	Prefixes []string
}

// Receipt has the revision of the last marked write of a context. It is safe for concurrent use.
type Receipt struct{ revision atomic.Int64 }

type receiptKey struct{}

// WithReceipt returns a context for writes, and their receipt.
func WithReceipt(ctx context.Context) (context.Context, *Receipt) {
	r := &Receipt{}
	return context.WithValue(ctx, receiptKey{}, r), r
}

// Revision returns etcd's revision of the last marked write that was acknowledged,
// 0 when there was none.
func (r *Receipt) Revision() int64 { return r.revision.Load() }

// note keeps a revision if it is greater than the kept one. Writes of one context may run
// concurrently.
func (r *Receipt) note(revision int64) {
	for old := r.revision.Load(); old < revision && !r.revision.CompareAndSwap(old, revision); {
		old = r.revision.Load()
	}
}

// client is an etcd client whose writes set marks.
type client struct {
	kubernetes.Interface
	kv    clientv3.KV
	marks []Mark
}

// Client returns inner with writes that set the marks of the keys that they write. kv writes to the
// same etcd. Writes of other keys only cost the comparison of a few prefixes.
func Client(inner kubernetes.Interface, kv clientv3.KV, marks ...Mark) kubernetes.Interface {
	return &client{Interface: inner, kv: kv, marks: marks}
}

// of returns the mark of a key, nil if it has none.
func (c *client) of(key string) *Mark {
	for i := range c.marks {
		if slices.ContainsFunc(c.marks[i].Prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
			return &c.marks[i]
		}
	}
	return nil
}

// OptimisticPut implements kubernetes.Interface.
func (c *client) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, o kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	mark := c.of(key)
	if mark == nil {
		return c.Interface.OptimisticPut(ctx, key, value, expected, o)
	}
	put := clientv3.OpPut(key, string(value), clientv3.WithLease(o.LeaseID))
	succeeded, revision, kv, err := c.write(ctx, mark, key, expected, put, o.GetOnFailure)
	return kubernetes.PutResponse{KV: kv, Succeeded: succeeded, Revision: revision}, err
}

// OptimisticDelete implements kubernetes.Interface.
func (c *client) OptimisticDelete(ctx context.Context, key string, expected int64, o kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	mark := c.of(key)
	if mark == nil {
		return c.Interface.OptimisticDelete(ctx, key, expected, o)
	}
	succeeded, revision, kv, err := c.write(ctx, mark, key, expected, clientv3.OpDelete(key), o.GetOnFailure)
	return kubernetes.DeleteResponse{KV: kv, Succeeded: succeeded, Revision: revision}, err
}

// write performs an operation and sets the mark in one transaction, if the key was last modified at
// the expected revision. Otherwise it gets the key, if get is set.
func (c *client) write(ctx context.Context, mark *Mark, key string, expected int64, op clientv3.Op, get bool) (succeeded bool, revision int64, kv *mvccpb.KeyValue, err error) {
	txn := c.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", expected)).
		Then(op, clientv3.OpPut(mark.Key, key))
	if get {
		txn = txn.Else(clientv3.OpGet(key))
	}
	response, err := txn.Commit()
	if err != nil {
		return false, 0, nil, err
	}
	if r, ok := ctx.Value(receiptKey{}).(*Receipt); ok && response.Succeeded {
		r.note(response.Header.Revision)
	}
	if get && !response.Succeeded {
		if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) == 1 {
			kv = kvs[0]
		}
	}
	return response.Succeeded, response.Header.Revision, kv, nil
}
