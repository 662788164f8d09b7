package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// clients returns two clients of a new etcd: a client that reads and writes by calls, and a client
// that uses a connection.
func clients(t *testing.T) (direct, connected *clientv3.Client) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var both [2]*clientv3.Client
	for i := range both {
		c, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		both[i] = c.Client
	}
	s.Direct(both[0])
	return both[0], both[1]
}

// Writes by calls get the same answers and errors as writes over a connection.
func TestWritesByCallsAreThoseOfAConnection(t *testing.T) {
	direct, connected := clients(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	exists := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.ModRevision(key), ">", 0) }
	// large is larger than etcd allows for a request, but not larger than a message of the
	// connection may be.
	large := string(bytes.Repeat([]byte("x"), 8<<20))
	for _, tc := range []struct {
		name string
		ctx  context.Context
		txn  func(clientv3.Txn, string) clientv3.Txn
	}{
		{"create", t.Context(), func(txn clientv3.Txn, key string) clientv3.Txn {
			return txn.If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "a"))
		}},
		{"update of what is absent", t.Context(), func(txn clientv3.Txn, key string) clientv3.Txn {
			return txn.If(exists(key)).Then(clientv3.OpPut(key, "a")).Else(clientv3.OpGet(key))
		}},
		{"read", t.Context(), func(txn clientv3.Txn, key string) clientv3.Txn { return txn.Then(clientv3.OpGet(key)) }},
		{"one key twice", t.Context(), func(txn clientv3.Txn, key string) clientv3.Txn {
			return txn.Then(clientv3.OpPut(key, "a"), clientv3.OpPut(key, "b"))
		}},
		{"too large", t.Context(), func(txn clientv3.Txn, key string) clientv3.Txn { return txn.Then(clientv3.OpPut(key, large)) }},
		{"lease that is absent", t.Context(), func(txn clientv3.Txn, key string) clientv3.Txn {
			return txn.Then(clientv3.OpPut(key, "a", clientv3.WithLease(7)))
		}},
		{"canceled", ended, func(txn clientv3.Txn, key string) clientv3.Txn { return txn.Then(clientv3.OpPut(key, "a")) }},
		{"late", late, func(txn clientv3.Txn, key string) clientv3.Txn { return txn.Then(clientv3.OpPut(key, "a")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			say := func(c *clientv3.Client, key string) string {
				r, err := tc.txn(c.Txn(tc.ctx), key).Commit()
				if err != nil {
					return fmt.Sprintf("%T %v", err, err)
				}
				return fmt.Sprintf("%t, answers to %d operations, member %x of %x", r.Succeeded, len(r.Responses), r.Header.MemberId, r.Header.ClusterId)
			}
			if got, want := say(direct, "/direct/"+tc.name), say(connected, "/connected/"+tc.name); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// Reads by calls get the same answers and errors as reads over a connection.
func TestReadsByCallsAreThoseOfAConnection(t *testing.T) {
	direct, connected := clients(t)
	var first int64
	for i := range 5 {
		r, err := direct.Put(t.Context(), fmt.Sprintf("/r/%d", i), "value")
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			first = r.Header.Revision
		}
	}
	if _, err := direct.Compact(t.Context(), first, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	for _, tc := range []struct {
		name, key string
		ctx       context.Context
		options   []clientv3.OpOption
	}{
		{"one", "/r/1", t.Context(), nil},
		{"none", "/r/none", t.Context(), nil},
		{"many", "/r/", t.Context(), []clientv3.OpOption{clientv3.WithPrefix()}},
		{"some of many", "/r/", t.Context(), []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(2)}},
		{"keys", "/r/", t.Context(), []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly()}},
		{"a count", "/r/", t.Context(), []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCountOnly()}},
		{"without consensus", "/r/1", t.Context(), []clientv3.OpOption{clientv3.WithSerializable()}},
		{"an older revision", "/r/", t.Context(), []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(first + 1)}},
		{"a compacted revision", "/r/1", t.Context(), []clientv3.OpOption{clientv3.WithRev(1)}},
		{"a revision to come", "/r/1", t.Context(), []clientv3.OpOption{clientv3.WithRev(1000)}},
		{"no key", "", t.Context(), nil},
		{"canceled", "/r/1", ended, nil},
		{"late", "/r/1", late, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			say := func(c *clientv3.Client) string {
				r, err := c.Get(tc.ctx, tc.key, tc.options...)
				if err != nil {
					return fmt.Sprintf("%T %v", err, err)
				}
				return fmt.Sprintf("%d of %d, more %t, at %d, member %x of %x: %v", len(r.Kvs), r.Count, r.More, r.Header.Revision, r.Header.MemberId, r.Header.ClusterId, r.Kvs)
			}
			if got, want := say(direct), say(connected); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// reading is an etcd whose reads wait for a lock, whatever their context is, until it is freed.
type reading struct {
	pb.KVServer
	called, free chan struct{}
}

func (r reading) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	close(r.called)
	<-r.free
	return &pb.RangeResponse{}, nil
}

// A read that waits for an etcd that hangs ends with its context and with its client, and etcd is
// not closed under it.
func TestAReadByACallLeavesAnEtcdThatHangs(t *testing.T) {
	for _, name := range []string{"its context", "its client"} {
		t.Run(name, func(t *testing.T) {
			client, closeClient := context.WithCancel(t.Context())
			defer closeClient()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, running := reading{called: make(chan struct{}), free: make(chan struct{})}, &reads{}
			read := make(chan error, 1)
			go func() {
				_, err := direct{server: r, reads: running, ending: &ending{}, client: client}.Range(ctx, &pb.RangeRequest{Key: []byte("k")})
				read <- err
			}()
			<-r.called
			if name == "its client" {
				closeClient()
			} else {
				cancel()
			}
			select {
			case err := <-read:
				if status.Code(err) != codes.Canceled {
					t.Errorf("got %v, want a canceled read", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the read waits on")
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				running.end()
			}()
			for running.begin() {
				running.running.Done()
				time.Sleep(time.Millisecond)
			}
			select {
			case <-ended:
				t.Error("etcd may be closed while a read is in it")
			default:
			}
			close(r.free)
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Error("etcd cannot be closed after the read")
			}
		})
	}
}

// refusing is an etcd whose reads fail, and whose connection answers.
type refusing struct {
	pb.KVServer
	err error
}

func (r refusing) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return nil, r.err
}

type answering struct{ pb.KVClient }

func (answering) Range(context.Context, *pb.RangeRequest, ...grpc.CallOption) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Count: 1}, nil
}

// A read that may succeed later is tried again by the connection.
func TestAReadByACallIsTriedAgain(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"no leader", rpctypes.ErrGRPCNoLeader, true},
		{"the consensus is late", context.DeadlineExceeded, true},
		{"the consensus was given up", context.Canceled, true},
		{"compacted", rpctypes.ErrGRPCCompacted, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := direct{KVClient: answering{}, server: refusing{err: tc.err}, reads: &reads{}, ending: &ending{}, client: t.Context()}
			r, err := d.Range(t.Context(), &pb.RangeRequest{Key: []byte("k")})
			if again := err == nil && r.GetCount() == 1; again != tc.want || (!again && !errors.Is(err, tc.err)) {
				t.Errorf("%v, %v; tried again: %t, want %t", r, err, again, tc.want)
			}
		})
	}
}

// standing is an etcd that hangs.
type standing struct {
	pb.KVServer
	called chan struct{}
}

func (s standing) Txn(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) {
	close(s.called)
	<-ctx.Done()
	return nil, errors.New("etcdserver: request timed out")
}

// A write that waits for an etcd that hangs ends when the client is closed.
func TestAWriteByACallEndsWithItsClient(t *testing.T) {
	client, closeClient := context.WithCancel(t.Context())
	defer closeClient()
	s := standing{called: make(chan struct{})}
	put := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k")}}}}}
	written := make(chan error, 1)
	go func() {
		_, err := direct{server: s, client: client}.Txn(t.Context(), put)
		written <- err
	}()
	<-s.called
	closeClient()
	select {
	case err := <-written:
		if status.Code(err) != codes.Canceled {
			t.Errorf("got %v, want a canceled write", err)
		}
	case <-time.After(time.Minute):
		t.Error("the write waits on")
	}
}

// Many watches of one stream end when their client wants, also at the same time.
func TestManyWatchesEndAtOnce(t *testing.T) {
	direct, _ := clients(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watches []clientv3.WatchChan
	for i := range 200 {
		watches = append(watches, direct.Watch(ctx, fmt.Sprintf("/w/%d", i), clientv3.WithCreatedNotify()))
	}
	patience := time.After(time.Minute)
	for _, w := range watches {
		select {
		case <-w:
		case <-patience:
			t.Fatal("a watch does not begin")
		}
	}
	cancel()
	for _, w := range watches {
		for open := true; open; {
			select {
			case _, open = <-w:
			case <-patience:
				t.Fatal("a watch that was canceled goes on")
			}
		}
	}
}
