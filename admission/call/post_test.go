package call

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Post sends any body like a review: with the given headers and no query, to the first endpoint
// that accepts a connection (S8.4), with the service's name (S8.2), to a clean path (S3.2), without
// following redirects.
func TestPost(t *testing.T) {
	ca := newAuthority(t, "ca")
	type request struct{ Host, Path, Query, Agent, Type, Body string }
	var got request
	s := serve(t, ca.serving(t, "hook.infra.svc"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = request{r.Host, r.URL.Path, r.URL.RawQuery, r.UserAgent(), r.Header.Get("Content-Type"), string(body)}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}), nil)
	c := newCaller(t, Options{Resolver: fixed(refused(t), s.Listener.Addr().String())})
	var status int
	d := &Delivery{
		To:     &registration.ClientConfig{Service: &registration.Service{Namespace: "infra", Name: "hook", Path: "//convert/", Port: 443}, CABundle: ca.bundle},
		Header: http.Header{"Content-Type": {"text/plain"}, "User-Agent": {"tester"}},
		Body:   []byte("hello"),
		Read: func(_ context.Context, answer *http.Response) error {
			status = answer.StatusCode
			return nil
		},
	}
	if failure := c.Post(t.Context(), d); failure != nil {
		t.Fatal(failure)
	}
	if diff := cmp.Diff(request{"hook.infra.svc:443", "/convert", "", "tester", "text/plain", "hello"}, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if status != http.StatusFound || !d.Facts.Sent {
		t.Errorf("status %d, facts %+v", status, d.Facts)
	}
}

// A failed Post describes the failure, and the error of Read is its cause.
func TestPostFails(t *testing.T) {
	ca := newAuthority(t, "ca")
	odd := errors.New("odd answer")
	for _, tt := range []struct {
		name   string
		header int
		url    string
		cancel bool
		class  Class
		want   string
		reads  int
	}{
		{"what was read is wrong", 10, "", false, Answer, "odd answer", 1},
		{"large headers", 64 << 10, "", false, Transport, "server response headers exceeded 65536 bytes", 0},
		{"the caller leaves", 10, "", true, Transport, "context canceled", 0},
		{"no URL to call", 10, "http://localhost", false, Client, "is not the https URL of a host", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, ca.serving(t, "127.0.0.1"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Large", strings.Repeat("x", tt.header))
			}), nil)
			c := newCaller(t, Options{MaxHeaderBytes: 64 << 10})
			reads := 0
			to := &registration.ClientConfig{URL: s.URL, CABundle: ca.bundle}
			if tt.url != "" {
				to.URL = tt.url
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.cancel {
				cancel()
			}
			failure := c.Post(ctx, &Delivery{To: to, Read: func(context.Context, *http.Response) error {
				reads++
				return odd
			}})
			if failure == nil || failure.Class != tt.class || !strings.Contains(failure.Error(), tt.want) || failure.ClientGone != tt.cancel {
				t.Fatalf("got %+v", failure)
			}
			if reads != tt.reads || (reads > 0) != errors.Is(failure, odd) {
				t.Errorf("%d answers were read, cause %v", reads, failure.Cause)
			}
		})
	}
}

// Calls and posts to one server share its circuit.
func TestPostToAServerThatIsDown(t *testing.T) {
	c := newCaller(t, Options{})
	hook := urlHook("https://"+refused(t), nil)
	for range breakAfter {
		if _, err := c.Call(t.Context(), invocation(hook)); err == nil {
			t.Fatal("no error")
		}
	}
	failure := c.Post(t.Context(), &Delivery{To: &hook.ClientConfig})
	if failure == nil || failure.Class != CircuitOpen || failure.Endpoints != nil {
		t.Errorf("got %v", failure)
	}
}
