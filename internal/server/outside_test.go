package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// endless is a body that is much longer than any may be. It counts what is read of it.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	if e.read += len(b); e.read > 16*outsideBody {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = '['
	}
	return len(b), nil
}

// connection is a client that counts what it is sent, and records how the server bounds the time.
type connection struct {
	header    http.Header
	code      int
	sent      int
	deadlines []time.Time
	// flushes says how many deadlines were set before each flush.
	flushes []int
}

func (c *connection) Header() http.Header  { return c.header }
func (c *connection) WriteHeader(code int) { c.code = code }
func (c *connection) Flush()               { c.flushes = append(c.flushes, len(c.deadlines)) }
func (c *connection) Write(b []byte) (int, error) {
	c.sent += len(b)
	return len(b), nil
}
func (c *connection) SetReadDeadline(at time.Time) error {
	c.deadlines = append(c.deadlines, at)
	return nil
}
func (c *connection) SetWriteDeadline(at time.Time) error { return c.SetReadDeadline(at) }

// An answer is sent before its time is unbounded again. A handler that panics sends none, and leaves
// no bound for the next request of its connection.
func TestAnswersOutsideOfTheAPIAreSentInTime(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		flushes []int
	}{
		"an answer": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, []int{2}},
		"a panic":   {func(http.ResponseWriter, *http.Request) { panic("broken") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := &connection{header: http.Header{}}
			func() {
				defer func() { _ = recover() }()
				outside(c.handler).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
			}()
			if !slices.Equal(w.flushes, c.flushes) {
				t.Errorf("the answer is sent after %v deadlines, want %v", w.flushes, c.flushes)
			}
			if len(w.deadlines) != 4 || !w.deadlines[2].IsZero() || !w.deadlines[3].IsZero() {
				t.Errorf("the deadlines are %v", w.deadlines)
			}
		})
	}
}

// Every endpoint outside of the API, those that a library adds among them, reads a bounded body in a
// bounded time, for a stranger and for the server itself, and has an answer of a bounded size.
func TestEveryEndpointOutsideOfTheAPIIsBounded(t *testing.T) {
	s, err := New(Options{DataDir: t.TempDir(), Console: true, LatestLog: func() []byte { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.Run(ctx, func(Address) { close(ready) }) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	a := s.assembly.Load()
	// The library keeps the paths for itself.
	mux := reflect.ValueOf(a.generic.Handler.NonGoRestfulMux).Elem()
	paths := []string{"/console/", "/console/view/explain", "/no/such/endpoint"}
	for _, field := range []string{"pathToHandler", "prefixToHandler"} {
		for _, key := range mux.FieldByName(field).MapKeys() {
			if path := key.String(); !inAPI(path) {
				paths = append(paths, path)
			}
		}
	}
	for _, service := range a.generic.Handler.GoRestfulContainer.RegisteredWebServices() {
		for _, route := range service.Routes() {
			if !inAPI(route.Path) {
				paths = append(paths, strings.TrimSuffix(route.Path, "/"))
			}
		}
	}
	slices.Sort(paths)
	for _, known := range []string{"/", "/debug/flags/v", "/debug/pprof/profile", "/healthz", "/metrics", "/openapi/v2", "/openid/v1/jwks", "/version"} {
		if !slices.Contains(paths, known) {
			t.Errorf("%s is not among the endpoints that were found: %v", known, paths)
		}
	}
	for _, path := range slices.Compact(paths) {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
			for _, token := range []string{"", a.loopback.config.BearerToken} {
				body := &endless{}
				req := httptest.NewRequestWithContext(t.Context(), method, path+"?seconds=1", io.NopCloser(body))
				if token != "" {
					req.Header.Set("Authorization", "Bearer "+token)
				}
				w := &connection{header: http.Header{}}
				a.generic.Handler.ServeHTTP(w, req)
				const slack = 1 << 20
				if body.read > outsideBody+slack {
					t.Errorf("%s %s reads %d bytes", method, path, body.read)
				}
				if w.sent > 64<<20 {
					t.Errorf("%s %s answers with %d bytes", method, path, w.sent)
				}
				bounded := len(w.deadlines) == 4 && w.deadlines[2].IsZero() && w.deadlines[3].IsZero()
				for _, at := range w.deadlines[:min(2, len(w.deadlines))] {
					left := time.Until(at)
					bounded = bounded && !at.IsZero() && (left <= outsideTime || left <= profileTime && strings.HasPrefix(path, "/debug/pprof/"))
				}
				if !bounded {
					t.Errorf("%s %s has the deadlines %v", method, path, w.deadlines)
				}
			}
		}
	}
	t.Logf("%d endpoints: %v", len(paths), paths)
}
