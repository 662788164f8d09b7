package etcd

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ending ends calls before etcd ends by itself, as a removed member does: etcd closes its database without waiting for
// reads, and they panic, some of them with a lock that other reads and the end of etcd wait for.
type ending struct {
	// gate is the gate of the etcd that was started last; nil before.
	gate atomic.Pointer[gate]
}

// gate admits reads of one etcd until it stops.
type gate struct {
	server *etcdserver.EtcdServer
	// reads is held by each read of the database, and for good once etcd stops.
	reads sync.RWMutex
	// stopping ends when etcd stops.
	stopping context.Context
}

// of makes an etcd wait for its reads when it stops.
func (e *ending) of(server *etcdserver.EtcdServer) {
	stopping, stop := context.WithCancel(context.Background())
	g := &gate{server: server, stopping: stopping}
	e.gate.Store(g)
	server.GoAttach(func() {
		<-server.StoppingNotify()
		stop()
		g.reads.Lock()
	})
}

var errEnded = status.Error(codes.Unavailable, "etcd has ended")

// read makes a call that reads the database, unless etcd stops.
func (e *ending) read(ctx context.Context, read func(context.Context) error) error {
	g := e.gate.Load()
	if g == nil {
		return read(ctx)
	}
	if !g.reads.TryRLock() {
		return errEnded
	}
	defer g.reads.RUnlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.stopping, cancel)()
	err := e.call(func() error { return read(ctx) })
	if err != nil && g.stopping.Err() != nil {
		return errEnded
	}
	return err
}

// call makes a call. It panics as the call does unless etcd is ending.
func (e *ending) call(call func() error) (err error) {
	defer func() {
		if failure := recover(); failure != nil {
			if !e.ends() {
				panic(failure)
			}
			err = errEnded
		}
	}()
	return call()
}

func (e *ending) ends() bool {
	g := e.gate.Load()
	if g == nil {
		return false
	}
	select {
	case <-g.server.StoppingNotify():
		return true
	default:
		return false
	}
}

// readsKeys reports whether a method reads the database. Other methods wait for the consensus, which stops
// first.
func readsKeys(method string) bool {
	name, keys := strings.CutPrefix(method, "/etcdserverpb.KV/")
	return keys && (name == "Range" || name == "RangeStream" || name == "Txn")
}

// options are the options of a gRPC server whose calls end before etcd does.
func (e *ending) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, in any, about *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (out any, err error) {
			made := func(ctx context.Context) (err error) {
				out, err = handle(ctx, in)
				return err
			}
			if readsKeys(about.FullMethod) {
				err = e.read(ctx, made)
			} else {
				err = e.call(func() error { return made(ctx) })
			}
			return out, err
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, about *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if readsKeys(about.FullMethod) {
				return e.read(stream.Context(), func(ctx context.Context) error { return handle(server, endingStream{stream, ctx}) })
			}
			return e.call(func() error { return handle(server, stream) })
		}),
	}
}

// endingStream is a stream whose context ends when etcd stops.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endingStream) Context() context.Context { return s.ctx }
