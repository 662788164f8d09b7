package inflight

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// send passes a request through the limiter.
func send(h http.Handler, verb string, groups ...string) int {
	req := httptest.NewRequest("GET", "/", nil)
	ctx := request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: verb})
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "u", Groups: groups})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req.WithContext(ctx))
	return w.Code
}

// house is a handler whose requests stay until it is closed.
type house struct {
	*Limiter
	entered chan struct{}
	leave   chan struct{}
	yields  bool
	group   sync.WaitGroup
	handler http.Handler
}

func newHouse(o Options) *house {
	o.Serializer = scheme.Codecs
	o.LongRunning = func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }
	h := &house{Limiter: New(o), entered: make(chan struct{}), leave: make(chan struct{})}
	h.handler = h.Limit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if h.yields {
			Yield(req.Context())
			Yield(req.Context())
		}
		h.entered <- struct{}{}
		<-h.leave
	}))
	return h
}

// stay sends a request that gets in and stays.
func (h *house) stay(verb string, groups ...string) {
	h.group.Go(func() { send(h.handler, verb, groups...) })
	<-h.entered
}

func (h *house) close(t *testing.T) {
	close(h.leave)
	h.group.Wait()
	if r, w, y := h.reads.Load(), h.writes.Load(), h.yielded.Load(); r != 0 || w != 0 || y != 0 {
		t.Errorf("places still taken: %d reads, %d writes, %d yielded", r, w, y)
	}
}

func TestLimit(t *testing.T) {
	t.Run("reads and writes have places of their own", func(t *testing.T) {
		h := newHouse(Options{Reads: 1, Writes: 2})
		h.stay("get")
		h.stay("create")
		h.stay("update")
		for _, verb := range []string{"list", "delete"} {
			if code := send(h.handler, verb); code != http.StatusTooManyRequests {
				t.Errorf("%s: %d", verb, code)
			}
		}
		h.stay("watch")
		h.stay("create", user.SystemPrivilegedGroup)
		h.close(t)
	})
	t.Run("who waits gives back the place", func(t *testing.T) {
		h := newHouse(Options{Reads: 1, Writes: 1, Yielded: 2})
		h.yields = true
		h.stay("create")
		h.stay("create")
		// Those beyond the bound keep theirs.
		h.stay("create")
		if code := send(h.handler, "create"); code != http.StatusTooManyRequests {
			t.Errorf("%d", code)
		}
		h.close(t)
	})
	t.Run("who stepped aside comes back, also when all places are taken", func(t *testing.T) {
		l := New(Options{Reads: 1, Writes: 1, Yielded: 1, Serializer: scheme.Codecs,
			LongRunning: func(*http.Request, *request.RequestInfo) bool { return false }})
		var inner http.HandlerFunc
		h := l.Limit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { inner(w, req) }))
		inner = func(_ http.ResponseWriter, req *http.Request) {
			back := StepAside(req.Context())
			inner = func(http.ResponseWriter, *http.Request) {
				back()
				back()
				if n := l.writes.Load(); n != 2 {
					t.Errorf("%d have a place, want 2", n)
				}
				if code := send(h, "create"); code != http.StatusTooManyRequests {
					t.Errorf("a third one got in: %d", code)
				}
			}
			if code := send(h, "create"); code != http.StatusOK {
				t.Errorf("the second did not get in: %d", code)
			}
		}
		if code := send(h, "create"); code != http.StatusOK {
			t.Errorf("%d", code)
		}
		if w, y := l.writes.Load(), l.yielded.Load(); w != 0 || y != 0 {
			t.Errorf("places still taken: %d writes, %d yielded", w, y)
		}
	})
	t.Run("without a limiter there is nothing to give back", func(t *testing.T) {
		Yield(t.Context())
		StepAside(t.Context())()
	})
}
