package revisionmark

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// BenchmarkHasAnythingChanged measures the read that every write needs in strict mode, with a
// mark and without one. Without a mark, the read is for the keys that were written since the
// last read, and for the number of keys, since a deletion leaves no key: etcd looks at every
// object to answer.
//
//	go test ./internal/server/storage/revisionmark -run '^$' -bench . -count 5
func BenchmarkHasAnythingChanged(b *testing.B) {
	const prefix, mark = "/objects/", "/mark"
	etcd := etcdtest.Start(b)
	client := Client(etcd.Kubernetes, etcd.KV, Mark{Key: mark, Prefixes: []string{prefix}})
	value := make([]byte, 1<<10)
	stored, last := 0, int64(0)
	for _, objects := range []int{10, 100, 1000} {
		for ; stored < objects; stored++ {
			response, err := client.OptimisticPut(b.Context(), fmt.Sprint(prefix, stored), value, 0, etcdkubernetes.PutOptions{})
			if err != nil || !response.Succeeded {
				b.Fatal(response, err)
			}
			last = response.Revision
		}
		for name, changed := range map[string]func(context.Context) (bool, error){
			"mark": func(ctx context.Context) (bool, error) {
				r, err := etcd.KV.Get(ctx, mark)
				return err == nil && r.Kvs[0].ModRevision != last, err
			},
			"keys": func(ctx context.Context) (bool, error) {
				r, err := etcd.KV.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(last+1))
				return err == nil && (len(r.Kvs) > 0 || r.Count != int64(objects)), err
			},
		} {
			b.Run(fmt.Sprintf("objects=%d/asked=%s", objects, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if is, err := changed(b.Context()); err != nil || is {
						b.Fatalf("changed: %v, %v", is, err)
					}
				}
			})
		}
	}
}

// BenchmarkWrite measures the cost of a mark for a write of a marked key: another key in the
// same transaction.
func BenchmarkWrite(b *testing.B) {
	etcd := etcdtest.Start(b)
	client := Client(etcd.Kubernetes, etcd.KV, Mark{Key: "/mark", Prefixes: []string{"/marked/"}})
	var written atomic.Int64
	for _, name := range []string{"marked", "other"} {
		b.Run("key="+name, func(b *testing.B) {
			key, revision := fmt.Sprintf("/%s/%d", name, written.Add(1)), int64(0)
			value := make([]byte, 1<<10)
			for b.Loop() {
				response, err := client.OptimisticPut(b.Context(), key, value, revision, etcdkubernetes.PutOptions{})
				if err != nil || !response.Succeeded {
					b.Fatal(response, err)
				}
				revision = response.Revision
			}
		})
	}
}
