package controllers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// hanging answers each request with a body that stays empty until the request is over.
type hanging struct{ requests atomic.Int32 }

func (h *hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	h.requests.Add(1)
	return &http.Response{StatusCode: 200, Body: silent{req.Context()}, Request: req}, nil
}

type silent struct{ context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.Done()
	return 0, s.Err()
}

func (s silent) Close() error { return nil }

// closing notes that it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// A server that does not have the lease any more sends no request, also before it detects that its
// term is over. A watch ends with the term.
func TestNothingIsSentAfterATerm(t *testing.T) {
	term, end := context.WithCancel(t.Context())
	var held atomic.Bool
	held.Store(true)
	server := &hanging{}
	b := bounded{server, term, held.Load}
	send := func() (*http.Response, error) {
		body := &closing{Reader: strings.NewReader("{}")}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://server/api/v1/namespaces/n/pods/p", body)
		if err != nil {
			t.Fatal(err)
		}
		res, err := b.RoundTrip(req)
		if err != nil && !body.closed {
			t.Error("the body of the request is open")
		}
		return res, err
	}
	watch, err := send()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	held.Store(false)
	if _, err := send(); !errors.Is(err, errOver) || !errors.Is(err, context.Canceled) {
		t.Errorf("without the lease: %v", err)
	}
	held.Store(true)
	read := make(chan error)
	go func() {
		_, err := watch.Body.Read(make([]byte, 1))
		read <- err
	}()
	end()
	if err := <-read; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch: %v", err)
	}
	if _, err := send(); !errors.Is(err, errOver) {
		t.Errorf("after the term: %v", err)
	}
	if n := server.requests.Load(); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
}
