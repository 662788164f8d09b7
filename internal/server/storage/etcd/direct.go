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

// Direct makes a client of this etcd write by function calls: a connection inside of one
// process costs more than etcd itself. Reads still use the connection, because a call that
// waits for a lock of an etcd that hangs cannot be abandoned; a write waits only for the
// consensus. Watches use the connection, too: etcd's own adapter for watches hangs when many
// watches of a stream end at once.
func (s *Server) Direct(c *clientv3.Client) {
	c.KV = clientv3.NewKVFromKVClient(direct{clientv3.RetryKVClient(c), v3rpc.NewQuotaKVServer(s.etcd.Server), c.Ctx()}, c)
}

// direct reads and writes the keys of an etcd in this process.
type direct struct {
	pb.KVClient
	server pb.KVServer
	// client is a context that ends when the client is closed.
	client context.Context
}

// Txn implements pb.KVClient. Its errors are like those of a connection.
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
