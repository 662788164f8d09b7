package inprocess

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

type closed struct {
	io.Reader
	yes bool
}

func (c *closed) Close() error {
	c.yes = true
	return nil
}

func TestTransport(t *testing.T) {
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
			response, err := Transport{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				during = r.Context()
				if tc.ends {
					cancel(cause)
				}
				tc.handler(w, r)
			})}.RoundTrip(r)
			if !errors.Is(err, tc.want) || !sent.yes || during.Err() == nil {
				t.Fatalf("got %v, want %v; the body is closed: %t; the context of the request has ended: %v", err, tc.want, sent.yes, during.Err())
			}
			if err != nil {
				return
			}
			body, err := io.ReadAll(response.Body)
			if got := response.Header.Get("Got"); err != nil || string(body) != "hello" || response.StatusCode != http.StatusTeapot || response.Request != r ||
				got != "POST /a%20b?c=d 127.0.0.1:6443 127.0.0.1:1" {
				t.Errorf("%d %q %q %v", response.StatusCode, body, got, err)
			}
		})
	}
}
