package controllers

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// newest is an etcd with the revision of the newest key below each prefix.
type newest map[string]int64

func (n newest) Txn(context.Context) clientv3.Txn { return &newestTxn{newest: n} }

type newestTxn struct {
	clientv3.Txn
	newest newest
	ops    []clientv3.Op
}

func (t *newestTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.ops = ops
	return t
}

func (t *newestTxn) Commit() (*clientv3.TxnResponse, error) {
	response := &clientv3.TxnResponse{}
	for _, op := range t.ops {
		found := &etcdserverpb.RangeResponse{}
		if revision := t.newest[string(op.KeyBytes())]; revision > 0 {
			found.Kvs = []*mvccpb.KeyValue{{ModRevision: revision}}
		}
		response.Responses = append(response.Responses, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: found}})
	}
	return response, nil
}

func meant(namespace string, version int, finalizers ...string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, ResourceVersion: fmt.Sprint(version)}}
	if len(finalizers) > 0 {
		m.DeletionTimestamp, m.Finalizers = &metav1.Time{}, finalizers
	}
	return m
}

// The event of the deletion of an owner waits for the dependents that were stored before.
func TestTheNewsOfAnOwnerWaitsForItsDependents(t *testing.T) {
	type step = func(others *kindProgress)
	reach := func(revision int) step { return func(k *kindProgress) { k.passed(meant("ns", revision)) } }
	const orphan, foreground = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	for _, tc := range []struct {
		name          string
		before, after *metav1.PartialObjectMetadata
		// newest is the newest version of the other kind, in the namespace and everywhere.
		newest    int64
		synced    bool
		meanwhile step
		want      time.Duration
	}{
		{"orphan, a dependent is not known", meant("ns", 5), meant("ns", 10, orphan), 9, true, reach(9), time.Second},
		{"foreground, a dependent is not known", meant("ns", 5), meant("ns", 10, foreground), 9, true, reach(9), time.Second},
		{"an owner that is made known in this state", nil, meant("ns", 10, orphan), 9, true, reach(9), time.Second},
		{"an owner in no namespace", meant("", 5), meant("", 10, orphan), 9, true, reach(9), time.Second},
		{"what was written later counts no more than the deletion", meant("ns", 5), meant("ns", 10, orphan), 20, true, reach(10), time.Second},
		{"two owners do not wait for each other", meant("ns", 5), meant("ns", 10, orphan), 20, true,
			func(k *kindProgress) { go k.hold(meant("ns", 6), meant("ns", 20, orphan)) }, time.Second},
		{"a kind that has not begun", meant("ns", 5), meant("ns", 10, orphan), 1, false, func(k *kindProgress) {
			k.passed(meant("ns", 1))
			k.follow(func() bool { return true })
		}, time.Second},
		{"a kind that cannot be read is not waited for without end", meant("ns", 5), meant("ns", 10, orphan), 9, true, nil, holdAtMost},
		{"there is nothing else", meant("ns", 5), meant("ns", 10, orphan), 0, true, nil, 0},
		{"it is known already", meant("ns", 5, orphan), meant("ns", 10, orphan), 9, true, nil, 0},
		{"another finalizer", meant("ns", 5), meant("ns", 10, "example.com/other"), 9, true, nil, 0},
		{"it is not being deleted", meant("ns", 5), meant("ns", 10), 9, true, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				etcd := newest{"/b/": tc.newest, "/b/ns/": tc.newest, "/a/": 10, "/a/ns/": 10}
				p := &progress{term: ctx, etcd: transactions{KV: nil, newest: etcd}, prefix: func(gr schema.GroupResource) string { return "/" + gr.Resource + "/" }}
				own, other := p.of(schema.GroupVersionResource{Resource: "a"}), p.of(schema.GroupVersionResource{Resource: "b"})
				own.follow(func() bool { return true })
				other.follow(func() bool { return tc.synced })
				if tc.meanwhile != nil {
					time.AfterFunc(time.Second, func() { tc.meanwhile(other) })
				}
				began := time.Now()
				if tc.before == nil {
					own.hold(nil, tc.after)
				} else {
					own.hold(tc.before, tc.after)
				}
				if took := time.Since(began); took < tc.want || took > tc.want+2*lookInterval {
					t.Errorf("held back for %s, want %s", took, tc.want)
				}
				// After a wait that timed out, a kind is not waited for again.
				if tc.want == holdAtMost {
					began = time.Now()
					own.hold(tc.before, meant("ns", 11, orphan))
					if took := time.Since(began); took != 0 {
						t.Errorf("held back again for %s", took)
					}
				}
			})
		})
	}
}

// transactions is an etcd that only takes transactions.
type transactions struct {
	clientv3.KV
	newest newest
}

func (t transactions) Txn(ctx context.Context) clientv3.Txn { return t.newest.Txn(ctx) }
