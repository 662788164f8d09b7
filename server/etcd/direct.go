package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Direct has a client of this etcd write and watch by calls: a connection inside of one
// process costs more than etcd itself. Reads keep the connection, because a call that
// waits for an etcd that stands still cannot be abandoned, unless it is a write, which only
// waits for the consensus.
func (s *Server) Direct(c *clientv3.Client) {
	kv := direct{clientv3.RetryKVClient(c), v3rpc.NewQuotaKVServer(s.etcd.Server), c.Ctx()}
	c.KV = clientv3.NewKVFromKVClient(kv, c)
	watches := adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(s.etcd.Server))
	open := func() clientv3.Watcher { return clientv3.NewWatchFromWatchClient(watches, c) }
	c.Watcher = watcher{open(), open}
}

// direct is the keys of an etcd in this process.
type direct struct {
	pb.KVClient
	server pb.KVServer
	// client ends when the client is closed.
	client context.Context
}

// Txn implements pb.KVClient. Its errors are those of a connection.
func (d direct) Txn(ctx context.Context, in *pb.TxnRequest, options ...grpc.CallOption) (*pb.TxnResponse, error) {
	if txn.IsTxnReadonly(in) {
		return d.KVClient.Txn(ctx, in, options...)
	}
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.client, cancel)()
	response, err := d.server.Txn(call, in)
	switch {
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case d.client.Err() != nil:
		return nil, status.Error(codes.Canceled, "the client of etcd is closing")
	}
	return nil, err
}

// watcher watches an etcd in this process.
type watcher struct {
	clientv3.Watcher
	open func() clientv3.Watcher
}

// Another returns a watcher with streams of its own.
func (w watcher) Another() clientv3.Watcher { return w.open() }
