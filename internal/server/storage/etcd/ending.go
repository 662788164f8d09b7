package etcd

import (
	"context"
	"sync/atomic"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ending makes calls fail that read while etcd ends by itself, as a member does that the others remove: etcd closes its
// database without waiting for them, and they panic.
type ending struct {
	server atomic.Pointer[etcdserver.EtcdServer]
}

// call makes a call. It panics as the call does unless etcd is ending.
func (e *ending) call(call func() error) (err error) {
	defer func() {
		if failure := recover(); failure != nil {
			if !e.ends() {
				panic(failure)
			}
			err = status.Error(codes.Unavailable, "etcd has ended")
		}
	}()
	return call()
}

func (e *ending) ends() bool {
	server := e.server.Load()
	if server == nil {
		return false
	}
	select {
	case <-server.StoppingNotify():
		return true
	default:
		return false
	}
}

// options are those of a gRPC server whose calls are made by call.
func (e *ending) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (out any, err error) {
			err = e.call(func() (err error) {
				out, err = handle(ctx, in)
				return err
			})
			return out, err
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return e.call(func() error { return handle(server, stream) })
		}),
	}
}
