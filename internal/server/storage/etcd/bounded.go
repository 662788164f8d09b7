package etcd

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// bounded reads and writes the keys of an etcd within a time for each call, retries included.
type bounded struct {
	pb.KVClient
	timeout time.Duration
}

// Range implements pb.KVClient.
func (b bounded) Range(ctx context.Context, in *pb.RangeRequest, options ...grpc.CallOption) (*pb.RangeResponse, error) {
	return within(ctx, b.timeout, func(ctx context.Context) (*pb.RangeResponse, error) { return b.KVClient.Range(ctx, in, options...) })
}

// Put implements pb.KVClient.
func (b bounded) Put(ctx context.Context, in *pb.PutRequest, options ...grpc.CallOption) (*pb.PutResponse, error) {
	return within(ctx, b.timeout, func(ctx context.Context) (*pb.PutResponse, error) { return b.KVClient.Put(ctx, in, options...) })
}

// DeleteRange implements pb.KVClient.
func (b bounded) DeleteRange(ctx context.Context, in *pb.DeleteRangeRequest, options ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	return within(ctx, b.timeout, func(ctx context.Context) (*pb.DeleteRangeResponse, error) {
		return b.KVClient.DeleteRange(ctx, in, options...)
	})
}

// Txn implements pb.KVClient.
func (b bounded) Txn(ctx context.Context, in *pb.TxnRequest, options ...grpc.CallOption) (*pb.TxnResponse, error) {
	return within(ctx, b.timeout, func(ctx context.Context) (*pb.TxnResponse, error) { return b.KVClient.Txn(ctx, in, options...) })
}

func within[T any](ctx context.Context, timeout time.Duration, call func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := call(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("etcd has not answered for %s: its server has ended or hangs, or a majority of its members does not run", timeout)
	}
	return out, err
}
