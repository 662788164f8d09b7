package boundstest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

const (
	// slackBytes is the number of bytes that may be read beyond the limit of a body, and slackTime the time
	// for a response.
	slackBytes, slackTime = 1 << 20, 10 * time.Second
	// maxSent limits the size of responses, in bytes.
	maxSent = 64 << 20
)

// Endpoints returns the paths that a handler serves, including the paths of k8s.io/apiserver.
func Endpoints(h *genericapiserver.APIServerHandler) (paths []string) {
	// k8s.io/apiserver does not export the paths.
	mux := reflect.ValueOf(h.NonGoRestfulMux).Elem()
	for _, field := range []string{"pathToHandler", "prefixToHandler"} {
		for _, key := range mux.FieldByName(field).MapKeys() {
			paths = append(paths, key.String())
		}
	}
	for _, service := range h.GoRestfulContainer.RegisteredWebServices() {
		for _, route := range service.Routes() {
			paths = append(paths, strings.TrimSuffix(route.Path, "/"))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Check requests each path with several methods, with each bearer token and without a token. The handler must
// read at most the number of bytes that limit returns, set deadlines within the time that limit returns, and
// send a bounded response.
func Check(t *testing.T, h http.Handler, paths, tokens []string, limit func(*http.Request) (time.Duration, int64)) {
	t.Helper()
	for _, path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
			for _, token := range append([]string{""}, tokens...) {
				req := httptest.NewRequestWithContext(t.Context(), method, path+"?seconds=1", nil)
				if token != "" {
					req.Header.Set("Authorization", "Bearer "+token)
				}
				most, size := limit(req)
				if most == 0 || size == 0 {
					t.Errorf("%s %s has no limit", method, path)
					continue
				}
				body := &endless{most: 2*size + slackBytes}
				req.Body, req.ContentLength = io.NopCloser(body), -1
				w := &connection{header: http.Header{}}
				h.ServeHTTP(w, req)
				if body.read > size+slackBytes {
					t.Errorf("%s %s reads %d bytes, want %d", method, path, body.read, size)
				}
				if w.sent > maxSent {
					t.Errorf("%s %s answers with %d bytes", method, path, w.sent)
				}
				want := 2
				if w.code == http.StatusUnauthorized {
					// The rest of the body has a shorter deadline.
					want = 3
				}
				bounded := len(w.deadlines) == want
				for _, at := range w.deadlines {
					bounded = bounded && !at.IsZero() && time.Until(at) <= most+slackTime
				}
				if !bounded {
					t.Errorf("%s %s has the deadlines %v, want %s", method, path, w.deadlines, most)
				}
				if closes := w.header.Get("Connection") == "close"; w.code == http.StatusUnauthorized && !closes {
					t.Errorf("%s %s: the connection stays open after 401", method, path)
				}
			}
		}
	}
	t.Logf("%d endpoints: %v", len(paths), paths)
}

// endless is a body longer than any limit. It counts the bytes that are read.
type endless struct{ read, most int64 }

func (e *endless) Read(b []byte) (int, error) {
	if e.read += int64(len(b)); e.read > e.most {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = '['
	}
	return len(b), nil
}

// connection is a ResponseWriter that counts its bytes and records its deadlines.
type connection struct {
	header    http.Header
	code      int
	sent      int
	deadlines []time.Time
}

func (c *connection) Header() http.Header  { return c.header }
func (c *connection) WriteHeader(code int) { c.code = code }
func (c *connection) Flush()               {}
func (c *connection) Write(b []byte) (int, error) {
	c.sent += len(b)
	return len(b), nil
}
func (c *connection) SetReadDeadline(at time.Time) error {
	c.deadlines = append(c.deadlines, at)
	return nil
}
func (c *connection) SetWriteDeadline(at time.Time) error { return c.SetReadDeadline(at) }
