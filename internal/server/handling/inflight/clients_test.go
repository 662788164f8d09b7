package inflight

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// slowly returns a limiter with one place for reads and one for writes, and the handler behind all of its filters.
// The header User names the user that sends a request, and Verb the request's verb.
func slowly(handler http.HandlerFunc) (*Limiter, http.Handler) {
	l := New(Options{Reads: 1, Writes: 1, Yielded: 10, MaxBody: 1 << 20, Serializer: scheme.Codecs,
		LongRunning: func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }})
	behind := Reserve(l.Serve(l.Limit(handler)))
	return l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u := &user.DefaultInfo{Name: req.Header.Get("User"), Groups: req.Header["Groups"]}
		ctx := request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: req.Header.Get("Verb"), IsResourceRequest: true})
		behind.ServeHTTP(w, req.WithContext(request.WithUser(ctx, u)))
	})
}

// serve has a handler serve connections in memory until the test ends, and returns a client.
func serve(t *testing.T, handler http.Handler, protocol string) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(protocol == "HTTP/1.1")
	protocols.SetUnencryptedHTTP2(protocol == "HTTP/2.0")
	conns := make(clients, 1)
	server := &http.Server{Handler: handler, Protocols: protocols}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listening{conns})
	}()
	transport := &http.Transport{Protocols: protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: pieceSize}, DialContext: func(context.Context, string, string) (net.Conn, error) {
		there, here := net.Pipe()
		conns <- there
		return here, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		<-ended
	})
	return &http.Client{Transport: transport}
}

// listening is a listener that has an address.
type listening struct{ clients }

func (listening) Addr() net.Addr { return &net.TCPAddr{} }

func ask(t *testing.T, method, verb, who string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), method, "http://server/", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User", who)
	req.Header.Set("Verb", verb)
	return req
}

var protocols = []string{"HTTP/1.1", "HTTP/2.0"}

// S27.6: a request has no place while its body arrives, so it does not keep others out. A body that
// takes too long is refused with 504.
func TestSlowBodiesTakeNoPlace(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, handler := slowly(func(w http.ResponseWriter, req *http.Request) {
					_, _ = io.Copy(w, req.Body)
				})
				client := serve(t, handler, protocol)
				type reply struct {
					code int
					text string
				}
				send := func(who string, body io.Reader) reply {
					resp, err := client.Do(ask(t, "POST", "create", who, body))
					if err != nil {
						return reply{text: err.Error()}
					}
					defer resp.Body.Close()
					text, _ := io.ReadAll(resp.Body)
					return reply{resp.StatusCode, string(text)}
				}
				slow := func(who string) (io.WriteCloser, chan reply) {
					body, rest := io.Pipe()
					replies := make(chan reply, 1)
					go func() { replies <- send(who, body) }()
					_, _ = io.WriteString(rest, "half ")
					synctest.Wait()
					return rest, replies
				}
				rest, patient := slow("mallory")
				never, late := slow("mallory")
				defer never.Close()
				if taken, _ := l.writes.count(); taken != 0 {
					t.Errorf("%d requests have a place while their bodies arrive", taken)
				}
				if got := send("bob", strings.NewReader("all")); got != (reply{http.StatusOK, "all"}) {
					t.Errorf("another request: %v", got)
				}
				time.Sleep(arrivalTime - time.Second)
				_, _ = io.WriteString(rest, "and half")
				rest.Close()
				if got := <-patient; got != (reply{http.StatusOK, "half and half"}) {
					t.Errorf("a slow request: %v", got)
				}
				began := time.Now()
				got := <-late
				if took := time.Since(began); got.code != http.StatusGatewayTimeout || !strings.Contains(got.text, "did not arrive within 30s") || took != time.Second {
					t.Errorf("a request that is too slow, %s after another one: %v", took, got)
				}
				synctest.Wait()
				l.checkEmpty(t)
				if l.arriving.held != 0 || len(l.arriving.users) != 0 {
					t.Errorf("%d bytes are held for %v", l.arriving.held, l.arriving.users)
				}
			})
		})
	}
}

// S27.6: a body has no more time than its request.
func TestBodiesHaveTheTimeOfTheirRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, handler := slowly(func(http.ResponseWriter, *http.Request) { t.Error("handled") })
		client := serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
			defer cancel()
			handler.ServeHTTP(w, req.WithContext(ctx))
		}), "HTTP/1.1")
		body, rest := io.Pipe()
		defer rest.Close()
		go func() { _, _ = io.WriteString(rest, "half") }()
		began := time.Now()
		resp, err := client.Do(ask(t, "PUT", "update", "alice", body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(began); resp.StatusCode != http.StatusGatewayTimeout || took != 2*time.Second {
			t.Errorf("%d after %v", resp.StatusCode, took)
		}
	})
}

// S27.6: handlers read the same bytes and errors as without this handler.
func TestBodiesArriveUnchanged(t *testing.T) {
	const most = 1 << 20
	broken := errors.New("broken off")
	for _, c := range []struct {
		name   string
		length int64
		body   func() io.Reader
	}{
		{"nothing", 0, func() io.Reader { return http.NoBody }},
		{"a little", 5, func() io.Reader { return strings.NewReader("hello") }},
		{"a byte at a time", 5, func() io.Reader { return iotest.OneByteReader(strings.NewReader("hello")) }},
		{"the end with the last bytes", 5, func() io.Reader { return iotest.DataErrReader(strings.NewReader("hello")) }},
		{"of unknown length", -1, func() io.Reader { return strings.NewReader("hello") }},
		{"of unknown length, much", -1, func() io.Reader { return bytes.NewReader(bytes.Repeat([]byte("12345"), 100_000)) }},
		{"as much as may be", most, func() io.Reader { return bytes.NewReader(make([]byte, most)) }},
		{"too much", 2 * most, func() io.Reader { return bytes.NewReader(make([]byte, 2*most)) }},
		{"too much, of unknown length", -1, func() io.Reader { return bytes.NewReader(make([]byte, 2*most)) }},
		{"broken off", 10, func() io.Reader { return io.MultiReader(strings.NewReader("hello"), iotest.ErrReader(broken)) }},
		{"broken off at once", -1, func() io.Reader { return iotest.ErrReader(broken) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, wantErr := io.ReadAll(c.body())
			closed := false
			called := false
			l := New(Options{Reads: 1, Writes: 1, MaxBody: most, LongRunning: func(*http.Request, *request.RequestInfo) bool { return false }})
			handler := Reserve(l.Serve(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				called = true
				got, err := io.ReadAll(req.Body)
				if !bytes.Equal(got, want) || err != wantErr {
					t.Errorf("%d bytes and %v, want %d and %v", len(got), err, len(want), wantErr)
				}
				if l.arriving.held != 0 {
					t.Errorf("%d bytes are held when the body is read", l.arriving.held)
				}
				if a, ok := req.Body.(*arrived); ok && a.Reader != (failing{wantErr}) && wantErr != nil || ok && wantErr == nil && a.Reader != (failing{io.EOF}) {
					t.Errorf("%T still has the bytes that have been read", a.Reader)
				}
				req.Body.Close()
			})))
			req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "create"}), "POST", "/", nil)
			req.Body, req.ContentLength = closing{c.body(), &closed}, c.length
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if !called || !closed {
				t.Errorf("called: %t, closed: %t", called, closed)
			}
		})
	}
}

type closing struct {
	io.Reader
	closed *bool
}

func (c closing) Close() error {
	*c.closed = true
	return nil
}

// S27.6: a user holds no more bytes than remain for all other users.
func TestBytesAreShared(t *testing.T) {
	b := &budget{limit: 100}
	for i, c := range []struct {
		user  string
		bytes int64
		ok    bool
	}{
		{"alice", 51, false}, {"alice", 50, true}, {"alice", 1, false},
		{"bob", 26, false}, {"bob", 25, true},
		{"carol", 12, true},
		{"alice", -50, true}, {"bob", 5, true}, {"alice", 30, false}, {"alice", 29, true},
		{"alice", -29, true}, {"bob", -30, true}, {"carol", -12, true},
	} {
		ok := true
		if c.bytes < 0 {
			b.give(c.user, -c.bytes)
		} else {
			ok = b.take(c.user, c.bytes)
		}
		if ok != c.ok {
			t.Errorf("%d: %d bytes for %s: %t, want %t", i, c.bytes, c.user, ok, c.ok)
		}
	}
	if b.held != 0 || len(b.users) != 0 {
		t.Errorf("%d bytes are left, of %v", b.held, slices.Collect(maps.Keys(b.users)))
	}
}

// S27.6: requests get 429 when there is no room for their bytes. Bodies of requests of
// system:masters are read when the requests have a place.
func TestBodiesHaveABound(t *testing.T) {
	const size = 100 << 10
	masters := []string{user.SystemPrivilegedGroup}
	for _, c := range []struct {
		name   string
		groups []string
		length int64
		want   int
	}{
		{"announced", nil, size, http.StatusTooManyRequests},
		{"not announced", nil, -1, http.StatusTooManyRequests},
		{"announced, of an administrator", masters, size, http.StatusOK},
		{"not announced, of an administrator", masters, -1, http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, handler := slowly(func(w http.ResponseWriter, req *http.Request) {
				if got, err := io.ReadAll(req.Body); err != nil || len(got) != size {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
			send := func(who string) *httptest.ResponseRecorder {
				req := ask(t, "POST", "create", who, strings.NewReader(strings.Repeat("x", size)))
				req.Header["Groups"], req.ContentLength = c.groups, c.length
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, req)
				return w
			}
			for _, room := range []int64{arrivalCost, arrivalCost + 600, arrivalCost + size - 1} {
				// The user may have half of it.
				l.arriving.limit = 2 * room
				l.arriving.take("mallory", 200)
				w := send("mallory")
				if w.Code != c.want || c.want != http.StatusOK && w.Header().Get("Retry-After") != "1" {
					t.Errorf("%d: %d, Retry-After %q", room, w.Code, w.Header().Get("Retry-After"))
				}
				l.arriving.give("mallory", 200)
			}
			l.arriving.limit = maxArriving
			if w := send("bob"); w.Code != http.StatusOK {
				t.Errorf("somebody else: %d", w.Code)
			}
			l.checkEmpty(t)
			if l.arriving.held != 0 {
				t.Errorf("%d bytes are held", l.arriving.held)
			}
		})
	}
}

// S27.7: the response to a client that does not read is ended, and gives back its place. A client
// that reads slowly gets its response, and the events of a watch have no bound.
func TestUnreadAnswersEnd(t *testing.T) {
	const size = 1 << 20
	for _, protocol := range protocols {
		for _, c := range []struct {
			name, verb string
			// piece is how much the client reads at a time, in bytes, and pause how long it waits before.
			piece int64
			pause time.Duration
			ends  bool
		}{
			{"never read", "list", 0, 10 * pieceTime, true},
			{"read too slowly", "get", pieceSize, 2 * pieceTime, true},
			{"read slowly", "list", pieceSize, pieceTime / 2, false},
			{"never read for long, of a watch", "watch", size, 10 * pieceTime, false},
		} {
			t.Run(protocol+" "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					type end struct {
						written int
						err     error
						after   time.Duration
					}
					ended := make(chan end, 1)
					l, handler := slowly(func(w http.ResponseWriter, _ *http.Request) {
						began := time.Now()
						n, err := w.Write(make([]byte, size))
						ended <- end{n, err, time.Since(began)}
					})
					resp, err := serve(t, handler, protocol).Do(ask(t, "GET", c.verb, "mallory", nil))
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if c.ends {
						e := <-ended
						synctest.Wait()
						l.checkEmpty(t)
						if e.err == nil || e.after > 2*pieceTime || c.piece == 0 && e.after != pieceTime {
							t.Errorf("%d bytes are written after %v: %v", e.written, e.after, e.err)
						}
						return
					}
					var read int64
					for err == nil {
						time.Sleep(c.pause)
						var n int64
						n, err = io.CopyN(io.Discard, resp.Body, c.piece)
						read += n
					}
					if e := <-ended; err != io.EOF || read != size || e.err != nil || e.written != size {
						t.Errorf("read %d bytes: %v; wrote %d: %v", read, err, e.written, e.err)
					}
				})
			})
		}
	}
}

// S27.7: a response that is over is not watched any more.
func TestAnswersThatAreOverAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answer{ResponseWriter: httptest.NewRecorder()}
		if _, err := a.Write(make([]byte, 3*pieceSize)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*pieceTime + time.Second)
		a.end()
		if a.watch.Stop() {
			t.Error("the timer goes on")
		}
	})
}
