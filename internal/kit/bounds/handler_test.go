package bounds

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slowly sends a request with an endless body. It returns the response, and a channel that is closed when the
// connection has ended.
func slowly(t *testing.T, server *httptest.Server, method string, length int) (code int, ended <-chan struct{}) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "%s /path HTTP/1.1\r\nHost: server\r\nContent-Length: %d\r\n\r\nx", method, length); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, in)
	}()
	return resp.StatusCode, gone
}

// A response does not wait for the rest of a body for long, and the connection ends soon after.
func TestSlowBodies(t *testing.T) {
	for name, c := range map[string]struct {
		code, length int
		limit        time.Duration
	}{
		"401 of a short body":   {401, 1000, time.Hour},
		"401 of a long body":    {401, 1 << 19, time.Hour},
		"401 without a limit":   {401, 1000, 0},
		"another of short body": {403, 1000, 100 * time.Millisecond},
		"another of long body":  {403, 1 << 19, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.code) }), func(*http.Request) Limit {
				if c.limit == 0 {
					return Limit{}
				}
				return Limit{Time: c.limit, Body: Body}
			}))
			defer server.Close()
			code, ended := slowly(t, server, http.MethodPost, c.length)
			if code != c.code {
				t.Errorf("the response is %d", code)
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the connection is open after a minute")
			}
		})
	}
}

// A body has a bounded size. The deadlines of a request do not apply to the next request of its connection.
func TestRequestsOfAConnection(t *testing.T) {
	server := httptest.NewServer(Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		code := http.StatusOK
		if _, err := io.ReadAll(req.Body); err != nil {
			code = http.StatusRequestEntityTooLarge
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(req.RemoteAddr)))
		w.WriteHeader(code)
		_, _ = io.WriteString(w, req.RemoteAddr)
		if req.URL.Path == "/over" {
			control, past := http.NewResponseController(w), time.Now().Add(-time.Second)
			if err := errors.Join(control.Flush(), control.SetReadDeadline(past), control.SetWriteDeadline(past)); err != nil {
				t.Error(err)
			}
		}
	}), func(*http.Request) Limit { return Limit{Time: time.Hour, Body: 10} }))
	defer server.Close()
	post := func(path, body string) (int, string) {
		resp, err := server.Client().Post(server.URL+path, "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	_, first := post("/over", "short")
	if code, again := post("/", "short"); code != http.StatusOK || again != first {
		t.Errorf("%d at %s, want the connection of %s", code, again, first)
	}
	if code, _ := post("/", strings.Repeat("x", 11)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 11 bytes: %d", code)
	}
}
