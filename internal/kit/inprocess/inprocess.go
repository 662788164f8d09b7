package inprocess

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"sync"

	"k8s.io/klog/v2"
)

var (
	errNoAnswer = errors.New("the server ended the request without an answer")
	errClosed   = errors.New("the server has ended")
)

// Serve has the handler answer a request. The context of the request ends with Serve, and keeps the values of the
// caller's context. An error is the end of the caller's context, or an answer that the handler aborted.
func Serve(h http.Handler, r *http.Request) (*httptest.ResponseRecorder, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := httptest.NewRecorder()
	err := serve(ctx, h, out, r)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// detach returns a context without the values of another, which ends with it, as a connection does.
func detach(of context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := context.AfterFunc(of, func() { cancel(context.Cause(of)) })
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}

func serve(ctx context.Context, h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		p := recover()
		switch cause, _ := p.(error); {
		case p == nil:
		case errors.Is(cause, http.ErrAbortHandler):
			err = errNoAnswer
		default:
			panic(p)
		}
	}()
	served := r.Clone(ctx)
	served.RemoteAddr, served.RequestURI = net.JoinHostPort("127.0.0.1", "1"), served.URL.RequestURI()
	served.URL.Scheme, served.URL.Host = "", ""
	if served.Body == nil {
		served.Body = http.NoBody
	}
	h.ServeHTTP(w, served)
	return nil
}

// Server is the connection of clients in the process of their server. It is safe for concurrent use.
type Server struct {
	open    chan struct{}
	opened  sync.Once
	handler http.Handler
	ctx     context.Context
	cancel  context.CancelFunc
	// mu orders Close and the begin of a request.
	mu      sync.Mutex
	running sync.WaitGroup
}

// NewServer returns a Server whose requests wait for Open.
func NewServer() *Server {
	s := &Server{open: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Open has the handler answer the requests. Only the first call has an effect.
func (s *Server) Open(h http.Handler) {
	s.opened.Do(func() {
		s.handler = h
		close(s.open)
	})
}

// Close ends all requests, and waits for their handlers.
func (s *Server) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}

// RoundTrip implements http.RoundTripper. A response is read while its handler writes it.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.WithContext(r.Context())
		r.Body = http.NoBody
	}
	select {
	case <-s.open:
	case <-r.Context().Done():
	case <-s.ctx.Done():
	}
	ctx, cancel := detach(r.Context())
	reader, writer := io.Pipe()
	w := &streamed{ctx: ctx, header: http.Header{}, pipe: writer, begun: make(chan struct{})}
	w.out = bufio.NewWriter(sent{w})
	s.mu.Lock()
	if s.ctx.Err() != nil || r.Context().Err() != nil {
		cancel(cmp.Or(context.Cause(r.Context()), errClosed))
		_ = r.Body.Close()
	} else {
		s.running.Go(func() {
			defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()
			// A handler that writes, or a client that reads, must not wait for the other after the end.
			defer context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })()
			err := w.answer(s.handler, r)
			_ = writer.CloseWithError(err)
			cancel(err)
		})
	}
	s.mu.Unlock()
	select {
	case <-w.begun:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.response == nil {
		return nil, context.Cause(ctx)
	}
	w.response.Body, w.response.Request = body{reader, cancel}, r
	return w.response, nil
}

// answer has the handler write the response. A panic of the handler is an error, as it is for a client with a connection.
func (w *streamed) answer(h http.Handler, r *http.Request) (err error) {
	defer r.Body.Close()
	defer func() {
		if p := recover(); p != nil {
			klog.ErrorS(nil, "A request of the server itself panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			err = errNoAnswer
		}
	}()
	if err := serve(w.ctx, h, w, r); err != nil {
		return err
	}
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	w.Flush()
	return nil
}

// body is the body of a response. Its end ends the request.
type body struct {
	*io.PipeReader
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (b body) Close() error {
	b.cancel(context.Canceled)
	return b.PipeReader.Close()
}

// streamed is a response for its handler. It has the methods of the writer of an HTTP/2 connection, which handlers of
// watches look for.
type streamed struct {
	ctx    context.Context
	header http.Header
	out    *bufio.Writer
	pipe   *io.PipeWriter
	// begun is closed when the client may read the response, which has the status and the header; mu guards it.
	begun    chan struct{}
	mu       sync.Mutex
	response *http.Response
	once     sync.Once
}

// begin gives the response to the client.
func (w *streamed) begin() {
	w.WriteHeader(http.StatusOK)
	w.once.Do(func() { close(w.begun) })
}

// sent is the end of the buffer of a response.
type sent struct{ *streamed }

// Write implements io.Writer.
func (s sent) Write(p []byte) (int, error) {
	s.begin()
	return s.pipe.Write(p)
}

// Header implements http.ResponseWriter.
func (w *streamed) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *streamed) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.response != nil {
		return
	}
	w.response = &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header.Clone(), ContentLength: -1,
	}
}

// Write implements http.ResponseWriter.
func (w *streamed) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(p)
}

// Flush implements http.Flusher.
func (w *streamed) Flush() {
	w.begin()
	_ = w.out.Flush()
}

// CloseNotify implements http.CloseNotifier.
func (w *streamed) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.ctx, func() { gone <- true })
	return gone
}
