package revisionmark

import (
	"sync"
	"testing"

	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// TestReceipt: a receipt has the revision of the last write that was done with its context and
// moved a mark.
func TestReceipt(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := Client(etcd.Kubernetes, etcd.KV, Mark{Key: "/mark", Prefixes: []string{"/marked/"}})
	put := func(t *testing.T, receipted bool, key string, expected int64) (revision, receipt int64) {
		t.Helper()
		ctx := t.Context()
		r := &Receipt{}
		if receipted {
			ctx, r = WithReceipt(ctx)
		}
		response, err := client.OptimisticPut(ctx, key, []byte("x"), expected, etcdkubernetes.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return response.Revision, r.Revision()
	}
	if revision, receipt := put(t, true, "/marked/a", 0); receipt != revision || receipt == 0 {
		t.Errorf("the receipt of a write at %d is %d", revision, receipt)
	}
	if _, receipt := put(t, true, "/marked/a", 0); receipt != 0 {
		t.Errorf("the receipt of a write that did not succeed is %d", receipt)
	}
	if _, receipt := put(t, true, "/other/a", 0); receipt != 0 {
		t.Errorf("the receipt of a write that moves no mark is %d", receipt)
	}
	revision, _ := put(t, false, "/marked/b", 0)

	ctx, receipt := WithReceipt(t.Context())
	deleted, err := client.OptimisticDelete(ctx, "/marked/b", revision, etcdkubernetes.DeleteOptions{})
	if err != nil || !deleted.Succeeded || receipt.Revision() != deleted.Revision {
		t.Errorf("the receipt of a deletion at %d is %d, %v", deleted.Revision, receipt.Revision(), err)
	}

	many := &Receipt{}
	var all sync.WaitGroup
	for i := range int64(100) {
		all.Go(func() { many.note(i) })
	}
	if all.Wait(); many.Revision() != 99 {
		t.Errorf("the receipt of many writes is %d", many.Revision())
	}
}
