package inprocess

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

type key struct{}

type closed struct {
	io.Reader
	yes bool
}

func (c *closed) Close() error {
	c.yes = true
	return nil
}

func TestServer(t *testing.T) {
	cause := errors.New("the client gave up")
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		ends    bool
		want    error
	}{
		{name: "a response", handler: func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Got", r.Method+" "+r.RequestURI+" "+r.Host+" "+r.RemoteAddr)
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write(body)
		}},
		{name: "a handler that panics", handler: func(http.ResponseWriter, *http.Request) { panic("a bug") }, want: errNoAnswer},
		{name: "a handler that aborts its answer", handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: errNoAnswer},
		{name: "a client that ends", ends: true, want: cause, handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var during context.Context
			sent := &closed{Reader: strings.NewReader("hello")}
			r, err := http.NewRequestWithContext(ctx, "POST", "https://127.0.0.1:6443/a%20b?c=d", sent)
			if err != nil {
				t.Fatal(err)
			}
			s := NewServer()
			defer s.Close()
			s.Open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				during = r.Context()
				if tc.ends {
					cancel(cause)
				}
				tc.handler(w, r)
			}))
			response, err := s.RoundTrip(r.WithContext(context.WithValue(ctx, key{}, "of the client")))
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if err == nil {
				body, err := io.ReadAll(response.Body)
				if got := response.Header.Get("Got"); err != nil || string(body) != "hello" || response.StatusCode != http.StatusTeapot || response.Request == nil ||
					got != "POST /a%20b?c=d 127.0.0.1:6443 127.0.0.1:1" {
					t.Errorf("%d %q %q %v", response.StatusCode, body, got, err)
				}
			}
			s.Close()
			if !sent.yes || during.Err() == nil || during.Value(key{}) != nil {
				t.Errorf("the body is closed: %t; the context of the request has ended: %v, and a value of the client's: %v", sent.yes, during.Err(), during.Value(key{}))
			}
		})
	}
}

// A stage notes in the context of a request which webhooks its server did not call.
func TestServeKeepsTheValuesOfItsCaller(t *testing.T) {
	r := get(t, context.WithValue(t.Context(), key{}, "of the caller"), "")
	var got any
	if _, err := Serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Context().Value(key{}) }), r); err != nil || got != "of the caller" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRequestsWaitForOpen(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(s *Server, cancel context.CancelFunc)
		want error
	}{
		{"opened", func(s *Server, _ context.CancelFunc) { s.Open(http.NotFoundHandler()) }, nil},
		{"closed", func(s *Server, _ context.CancelFunc) { s.Close() }, errClosed},
		{"opened and closed", func(s *Server, _ context.CancelFunc) { s.Close(); s.Open(http.NotFoundHandler()) }, errClosed},
		{"the client ends", func(_ *Server, cancel context.CancelFunc) { cancel() }, context.Canceled},
	} {
		for _, query := range []string{"", "?watch=true"} {
			t.Run(tc.name+query, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					s := NewServer()
					defer s.Close()
					ended := make(chan error, 1)
					go func() {
						response, err := s.RoundTrip(get(t, ctx, query))
						if err == nil {
							err = response.Body.Close()
						}
						ended <- err
					}()
					synctest.Wait()
					if len(ended) > 0 {
						t.Fatalf("the request did not wait: %v", <-ended)
					}
					tc.do(s, cancel)
					if err := <-ended; !errors.Is(err, tc.want) {
						t.Errorf("got %v, want %v", err, tc.want)
					}
				})
			})
		}
	}
}

func get(t *testing.T, ctx context.Context, query string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, "GET", "https://127.0.0.1:6443/pods"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A response is read while its handler writes, and both ends end it.
func TestResponsesAreStreams(t *testing.T) {
	gone := errors.New("the client is gone")
	for _, tc := range []struct {
		name string
		// handler runs after the first event; end ends the watch from the outside.
		handler func(ctx context.Context, w http.ResponseWriter)
		end     func(s *Server, body io.Closer, cancel context.CancelCauseFunc)
		read    string
		want    error
	}{
		{name: "the handler returns", handler: func(_ context.Context, w http.ResponseWriter) { _, _ = io.WriteString(w, "last") }, read: "last"},
		{name: "the handler aborts", handler: func(context.Context, http.ResponseWriter) { panic(http.ErrAbortHandler) }, want: errNoAnswer},
		{name: "the client's context ends", end: func(_ *Server, _ io.Closer, cancel context.CancelCauseFunc) { cancel(gone) }, want: gone},
		{name: "the server ends", end: func(s *Server, _ io.Closer, _ context.CancelCauseFunc) { s.Close() }, want: errClosed},
		{name: "the client closes the body", end: func(_ *Server, body io.Closer, _ context.CancelCauseFunc) { _ = body.Close() }, want: io.ErrClosedPipe},
		{name: "nobody reads", handler: func(ctx context.Context, w http.ResponseWriter) {
			for ctx.Err() == nil {
				_, _ = w.Write(make([]byte, 1<<16))
			}
		}, end: func(_ *Server, body io.Closer, _ context.CancelCauseFunc) { _ = body.Close() }, want: io.ErrClosedPipe},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			s, ended := NewServer(), make(chan bool)
			defer s.Close()
			s.Open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				notified := w.(interface{ CloseNotify() <-chan bool }).CloseNotify()
				w.Header().Set("Content-Type", "text/plain")
				w.WriteHeader(http.StatusAccepted)
				w.Header().Set("Content-Type", "is too late")
				_, _ = io.WriteString(w, "first")
				w.(http.Flusher).Flush()
				if tc.handler == nil {
					<-r.Context().Done()
					<-notified
					return
				}
				tc.handler(r.Context(), w)
			}))
			response, err := s.RoundTrip(get(t, ctx, "?watch=1"))
			if err != nil || response.StatusCode != http.StatusAccepted || response.Header.Get("Content-Type") != "text/plain" {
				t.Fatal(response, err)
			}
			first := make([]byte, len("first"))
			if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "first" {
				t.Fatalf("%q %v", first, err)
			}
			if tc.end != nil {
				tc.end(s, response.Body, cancel)
			}
			rest, err := io.ReadAll(response.Body)
			if !errors.Is(err, tc.want) || string(rest) != tc.read {
				t.Errorf("got %q, %v, want %q, %v", rest, err, tc.read, tc.want)
			}
			<-ended
		})
	}
}
