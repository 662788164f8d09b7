package etcd

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Reads and writes of a command end when the etcd has ended, whatever the context of the command is.
func TestCallsOfACommandEndWithoutAnEtcd(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(s.Close)
	defer end()
	c, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}, CallTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	calls := map[string]func(context.Context) error{
		"get":    func(ctx context.Context) error { _, err := c.KV.Get(ctx, "a"); return err },
		"put":    func(ctx context.Context) error { _, err := c.KV.Put(ctx, "a", "b"); return err },
		"delete": func(ctx context.Context) error { _, err := c.KV.Delete(ctx, "a"); return err },
		"txn": func(ctx context.Context) error {
			_, err := c.KV.Txn(ctx).Then(clientv3.OpPut("a", "b")).Commit()
			return err
		},
	}
	end()
	for name, call := range calls {
		// Without the bound, the test is over before the call.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := call(ctx)
		cancel()
		if err == nil || ctx.Err() == context.DeadlineExceeded || !strings.Contains(err.Error(), "has not answered for 1s: its server has ended") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
