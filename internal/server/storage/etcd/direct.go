package etcd

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/stack"
)

// Direct makes a client of this etcd read, write and watch by function calls, because a connection
// inside of one process costs more than etcd itself. In a cluster, watches use the connection,
// which ends them while there is no leader.
func (s *Server) Direct(c *clientv3.Client) {
	c.KV = clientv3.NewKVFromKVClient(direct{clientv3.RetryKVClient(c), v3rpc.NewQuotaKVServer(s.etcd.Server), &s.reads, &s.ending, s.majority, c.Ctx()}, c)
	if s.member != nil {
		return
	}
	calls := watches{server: v3rpc.NewWatchServer(s.etcd.Server), reads: &s.reads, closing: s.closing, client: c.Ctx()}
	var another func() clientv3.Watcher
	another = func() clientv3.Watcher { return calledWatcher{clientv3.NewWatchFromWatchClient(calls, c), another} }
	c.Watcher = another()
}

// direct reads and writes the keys of an etcd in this process.
type direct struct {
	pb.KVClient
	server pb.KVServer
	reads  *reads
	ending *ending
	// majority fails calls to a member without a leader.
	majority *majority
	// client is a context that ends when the client is closed.
	client context.Context
}

// Txn implements pb.KVClient. Its errors equal the errors of a connection.
func (d direct) Txn(ctx context.Context, in *pb.TxnRequest, options ...grpc.CallOption) (*pb.TxnResponse, error) {
	return call(ctx, d.majority, func(ctx context.Context) (*pb.TxnResponse, error) { return d.txn(ctx, in, options...) })
}

func (d direct) txn(ctx context.Context, in *pb.TxnRequest, options ...grpc.CallOption) (*pb.TxnResponse, error) {
	if txn.IsTxnReadonly(in) {
		return d.KVClient.Txn(ctx, in, options...)
	}
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.client, cancel)()
	response, err := d.server.Txn(call, in)
	return response, d.ended(ctx, err)
}

// ended returns the error of a call, or the reason why the call was ended.
func (d direct) ended(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case d.client.Err() != nil:
		return status.Error(codes.Canceled, "the client of etcd is closing")
	}
	return err
}

// Range implements pb.KVClient.
func (d direct) Range(ctx context.Context, in *pb.RangeRequest, options ...grpc.CallOption) (*pb.RangeResponse, error) {
	return call(ctx, d.majority, func(ctx context.Context) (*pb.RangeResponse, error) { return d.read(ctx, in, options...) })
}

// read reads keys. It may wait for a lock of an etcd that hangs, and this wait cannot be canceled.
// So the read has a goroutine of its own, which its caller leaves when the time is over. (A write
// waits only for the consensus, and ends with its context.)
func (d direct) read(ctx context.Context, in *pb.RangeRequest, options ...grpc.CallOption) (*pb.RangeResponse, error) {
	if !d.reads.begin() {
		return d.KVClient.Range(ctx, in, options...)
	}
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		response *pb.RangeResponse
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		defer d.reads.running.Done()
		stack.GrowPart()
		var a answer
		a.err = d.ending.read(call, func(ctx context.Context) (err error) {
			a.response, err = d.server.Range(ctx, in)
			return err
		})
		answers <- a
	}()
	select {
	case a := <-answers:
		err := d.ended(ctx, a.err)
		if retriable(err) && ctx.Err() == nil && d.client.Err() == nil {
			return d.KVClient.Range(ctx, in, options...)
		}
		return a.response, err
	case <-ctx.Done():
		return nil, d.ended(ctx, ctx.Err())
	case <-d.client.Done():
		return nil, d.ended(ctx, d.client.Err())
	}
}

// retriable reports whether the connection would retry a read after an error: for instance when there
// is no leader, or when the consensus has not answered etcd in time.
func retriable(err error) bool {
	return status.Code(err) == codes.Unavailable || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// reads are the running reads and watches by function calls. etcd must not be closed while they run.
type reads struct {
	mu      sync.RWMutex
	closed  bool
	running sync.WaitGroup
}

// begin begins a read or a watch, unless etcd is being closed.
func (r *reads) begin() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return false
	}
	r.running.Add(1)
	return true
}

// end returns when no read and no watch runs, and none will.
func (r *reads) end() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}
