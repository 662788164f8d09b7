package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Direct has a client of this etcd write by calls: a connection inside of one process costs
// more than etcd itself. Reads keep the connection, because a call that waits for a lock of
// an etcd that stands still cannot be abandoned; a write only waits for the consensus. So do
// watches: etcd's own adapter for them stands still when many watches of a stream end at once.
func (s *Server) Direct(c *clientv3.Client) {
	c.KV = clientv3.NewKVFromKVClient(direct{clientv3.RetryKVClient(c), v3rpc.NewQuotaKVServer(s.etcd.Server), c.Ctx()}, c)
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
