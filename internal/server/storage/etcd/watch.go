package etcd

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NewWatcher returns a watcher with streams of its own. It watches as the client does: by function
// calls, or by its connection.
func NewWatcher(c *clientv3.Client) clientv3.Watcher {
	if w, ok := c.Watcher.(calledWatcher); ok {
		return w.another()
	}
	return clientv3.NewWatcher(c)
}

// calledWatcher watches by function calls.
type calledWatcher struct {
	clientv3.Watcher
	another func() clientv3.Watcher
}

// watches are the watch streams of an etcd in this process, by function calls.
type watches struct {
	pb.WatchClient
	server pb.WatchServer
	reads  *reads
	// closing ends when the etcd is about to be closed, client when the client is closed.
	closing, client context.Context
}

var (
	errClosing       = status.Error(codes.Unavailable, "etcd is closing")
	errClientClosing = status.Error(codes.Canceled, "the client of etcd is closing")
)

// Watch implements pb.WatchClient.
func (w watches) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	if w.client.Err() != nil {
		return nil, errClientClosing
	}
	if !w.reads.begin() {
		return nil, errClosing
	}
	ctx, end := context.WithCancelCause(ctx)
	s := &stream{ctx: ctx, more: make(chan struct{}, 1), responses: make(chan *pb.WatchResponse, waitingResponses)}
	stops := []func() bool{
		context.AfterFunc(w.closing, func() { end(errClosing) }),
		context.AfterFunc(w.client, func() { end(errClientClosing) }),
	}
	go func() {
		defer w.reads.running.Done()
		err := w.server.Watch(servedStream{stream: s})
		for _, stop := range stops {
			stop()
		}
		if err == nil {
			err = io.EOF
		}
		end(err)
	}()
	return watchingStream{stream: s}, nil
}

// waitingResponses is how many responses of a stream may wait for the client, before etcd waits.
const waitingResponses = 16

// stream is a watch stream between a client and an etcd in one process.
type stream struct {
	// ctx ends with the stream; its cause is the error that the client gets.
	ctx       context.Context
	responses chan *pb.WatchResponse
	// more has a value when requests may have become more, or closed true.
	more chan struct{}

	mu struct {
		sync.Mutex
		// requests wait for etcd. Their number has no bound: the client sends and receives in one
		// goroutine, and would wait for etcd while etcd waits for the client.
		requests []*pb.WatchRequest
		closed   bool
	}
}

// ended is the error of a stream that has ended.
func (s *stream) ended() error {
	err := context.Cause(s.ctx)
	if errors.Is(err, s.ctx.Err()) {
		return status.FromContextError(err).Err()
	}
	return err
}

// request hands a request to etcd; nil means that no more will come.
func (s *stream) request(r *pb.WatchRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r == nil {
		s.mu.closed = true
	} else {
		s.mu.requests = append(s.mu.requests, r)
	}
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// next returns the oldest waiting request, or nil, and whether another may come.
func (s *stream) next() (r *pb.WatchRequest, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.requests) == 0 {
		return nil, !s.mu.closed
	}
	r, s.mu.requests = s.mu.requests[0], s.mu.requests[1:]
	return r, true
}

// watchingStream is the client's end of a stream.
type watchingStream struct {
	grpc.ClientStream
	*stream
}

func (s watchingStream) Context() context.Context { return s.ctx }

func (s watchingStream) Send(r *pb.WatchRequest) error {
	if s.ctx.Err() != nil {
		return io.EOF
	}
	s.request(r)
	return nil
}

func (s watchingStream) CloseSend() error {
	s.request(nil)
	return nil
}

func (s watchingStream) Recv() (*pb.WatchResponse, error) {
	select {
	case r := <-s.responses:
		return r, nil
	case <-s.ctx.Done():
	}
	// Responses that etcd sent before the end are delivered before the end.
	select {
	case r := <-s.responses:
		return r, nil
	default:
		return nil, s.ended()
	}
}

// servedStream is etcd's end of a stream.
type servedStream struct {
	grpc.ServerStream
	*stream
}

func (s servedStream) Context() context.Context { return s.ctx }

func (s servedStream) Recv() (*pb.WatchRequest, error) {
	for {
		switch r, open := s.next(); {
		case r != nil:
			return r, nil
		case !open:
			return nil, io.EOF
		}
		select {
		case <-s.more:
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
}

// Send sends a response. Its events belong to this stream alone, so that etcd may set the previous value in them;
// their keys and values are shared and must not be changed.
func (s servedStream) Send(r *pb.WatchResponse) error {
	select {
	case s.responses <- r:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
