package encryption

import (
	"context"
	"fmt"
	"path"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"k8s.io/apiserver/pkg/storage/value"
)

const (
	// perPage is how many values are read at once, and atOnce how many are written at once.
	perPage, atOnce = 500, 16
)

// SharedKeys is the prefix of the keys that servers share, below the prefix of all keys.
const SharedKeys = "gatehouse/pki"

// secretsIn calls do with each page of the Secrets, and of the keys that servers share, below a
// prefix in etcd.
func secretsIn(ctx context.Context, etcd clientv3.KV, root string, do func([]*mvccpb.KeyValue) error) error {
	for _, place := range []string{"secrets", SharedKeys} {
		prefix := path.Join("/", root, place) + "/"
		for from, more := prefix, true; more; {
			page, err := etcd.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(perPage))
			if err != nil {
				return fmt.Errorf("reading etcd: %w", err)
			}
			if err := do(page.Kvs); err != nil {
				return err
			}
			if more = page.More; more {
				from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
			}
		}
	}
	return nil
}

// Count counts the Secrets and shared keys below a prefix in etcd by the keys that they are
// encrypted with.
func Count(ctx context.Context, etcd clientv3.KV, root string) (map[Key]int, error) {
	counts := map[Key]int{}
	err := secretsIn(ctx, etcd, root, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			counts[By(kv.Value)]++
		}
		return nil
	})
	return counts, err
}

// Rewrite encrypts all Secrets and shared keys below a prefix in etcd that are not encrypted as
// configured, and returns how many it encrypted. All servers must have the configuration. A Secret
// that a server writes meanwhile stays as the server writes it. Rewrite can be ended at any moment and
// called again.
func (t *Transformers) Rewrite(ctx context.Context, etcd clientv3.KV, root string) (int, error) {
	var all atomic.Int64
	// A server may store once more a value that it encrypted before it had the configuration.
	for {
		var stale atomic.Int64
		err := secretsIn(ctx, etcd, root, func(page []*mvccpb.KeyValue) error {
			group, ctx := errgroup.WithContext(ctx)
			group.SetLimit(atOnce)
			for _, kv := range page {
				group.Go(func() error {
					found, written, err := t.rewrite(ctx, etcd, kv)
					if found {
						stale.Add(1)
					}
					if written {
						all.Add(1)
					}
					return err
				})
			}
			return group.Wait()
		})
		if err != nil || stale.Load() == 0 {
			return int(all.Load()), err
		}
	}
}

// rewrite encrypts one value anew if necessary. written is false if another client has written it.
func (t *Transformers) rewrite(ctx context.Context, etcd clientv3.KV, kv *mvccpb.KeyValue) (stale, written bool, err error) {
	secrets, key := t.TransformerForResource(Secrets), value.DefaultContext(kv.Key)
	plain, stale, err := secrets.TransformFromStorage(ctx, kv.Value, key)
	if err != nil || !stale {
		return false, false, err
	}
	encrypted, err := secrets.TransformToStorage(ctx, plain, key)
	if err != nil {
		return true, false, fmt.Errorf("encrypting %s: %w", kv.Key, err)
	}
	r, err := etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
		Then(clientv3.OpPut(string(kv.Key), string(encrypted), clientv3.WithLease(clientv3.LeaseID(kv.Lease)))).
		Commit()
	if err != nil {
		return true, false, fmt.Errorf("writing %s to etcd: %w", kv.Key, err)
	}
	return true, r.Succeeded, nil
}
