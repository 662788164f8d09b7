package inflight

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// send passes a request for a resource through the limiter.
func send(h http.Handler, verb string, groups ...string) int {
	return sendAs(context.Background(), h, &request.RequestInfo{Verb: verb, IsResourceRequest: true}, &user.DefaultInfo{Name: "u", Groups: groups}).Code
}

func sendAs(ctx context.Context, h http.Handler, info *request.RequestInfo, u user.Info) *httptest.ResponseRecorder {
	ctx = request.WithUser(request.WithRequestInfo(ctx, info), u)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
	return w
}

// house is a handler whose requests run until it is closed.
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

// stay sends a request that is admitted and keeps running.
func (h *house) stay(verb string, groups ...string) {
	h.group.Go(func() { send(h.handler, verb, groups...) })
	<-h.entered
}

func (h *house) close(t *testing.T) {
	close(h.leave)
	h.group.Wait()
	h.checkEmpty(t)
}

// checkEmpty checks that no request has a place.
func (l *Limiter) checkEmpty(t *testing.T) {
	t.Helper()
	for name, p := range map[string]*places{"reads": &l.reads, "writes": &l.writes, "masters' reads": &l.masterReads, "masters' writes": &l.masterWrites} {
		if taken, waiting := p.count(); taken != 0 || waiting != 0 || p.mu.aside != 0 {
			t.Errorf("%s: %d have a place, %d wait, %d stepped aside", name, taken, waiting, p.mu.aside)
		}
	}
	if n := l.yielded.Load(); n != 0 {
		t.Errorf("%d have yielded", n)
	}
}

// await waits until this number of requests wait in line.
func (p *places) await(waiting int) {
	for n := -1; n != waiting; _, n = p.count() {
		runtime.Gosched()
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
		// Requests beyond the bound keep their places.
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
				if n, _ := l.writes.count(); n != 2 {
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
		l.checkEmpty(t)
	})
	t.Run("without a limiter there is nothing to give back", func(t *testing.T) {
		Yield(t.Context())
		StepAside(t.Context())()
	})
}

// Requests of system:masters are not refused, but they are not handled all at once either.
func TestMastersWaitInLine(t *testing.T) {
	masters := []string{user.SystemPrivilegedGroup}
	t.Run("for places of their own", func(t *testing.T) {
		h := newHouse(Options{Reads: 1, Writes: 1})
		h.stay("create", masters...)
		const count = 100
		for i := range count {
			h.group.Go(func() { send(h.handler, "create", masters...) })
			h.masterWrites.await(i + 1)
		}
		for i := range count {
			h.leave <- struct{}{}
			<-h.entered
			if taken, waiting := h.masterWrites.count(); taken != 1 || waiting != count-1-i {
				t.Fatalf("%d have a place and %d wait, want 1 and %d", taken, waiting, count-1-i)
			}
		}
		// Others have theirs.
		h.stay("get", masters...)
		h.stay("create")
		if code := send(h.handler, "create"); code != http.StatusTooManyRequests {
			t.Errorf("a user: %d", code)
		}
		h.close(t)
	})
	t.Run("until their time is over", func(t *testing.T) {
		h := newHouse(Options{Reads: 1, Writes: 1})
		h.stay("create", masters...)
		ctx, cancel := context.WithCancel(t.Context())
		h.group.Go(func() {
			h.masterWrites.await(1)
			cancel()
		})
		w := sendAs(ctx, h.handler, &request.RequestInfo{Verb: "create", IsResourceRequest: true}, &user.DefaultInfo{Name: "u", Groups: masters})
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
		h.close(t)
	})
	t.Run("but not for what is no resource or has webhooks, nor the server itself", func(t *testing.T) {
		h := newHouse(Options{})
		for _, one := range []struct {
			info request.RequestInfo
			user string
		}{
			{request.RequestInfo{Verb: "get", Path: "/metrics"}, "u"},
			{request.RequestInfo{Verb: "delete", IsResourceRequest: true, APIGroup: "admissionregistration.k8s.io"}, "u"},
			{request.RequestInfo{Verb: "patch", IsResourceRequest: true, APIGroup: "apiextensions.k8s.io"}, "u"},
			{request.RequestInfo{Verb: "create", IsResourceRequest: true}, user.APIServerUser},
		} {
			h.group.Go(func() {
				sendAs(t.Context(), h.handler, &one.info, &user.DefaultInfo{Name: one.user, Groups: masters})
			})
			<-h.entered
		}
		h.close(t)
	})
	t.Run("which others leave who step aside, if these are not too many", func(t *testing.T) {
		h := newHouse(Options{Writes: 1, Yielded: 100})
		aside := make(chan bool)
		l := h.Limiter
		handler := l.Limit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			before := l.yielded.Load()
			back := StepAside(req.Context())
			aside <- l.yielded.Load() > before
			<-h.leave
			back()
		}))
		for i := range mastersAside + 1 {
			h.group.Go(func() { send(handler, "create", masters...) })
			if stepped, want := <-aside, i < mastersAside; stepped != want {
				t.Errorf("number %d stepped aside: %t", i, stepped)
			}
		}
		h.group.Go(func() { send(handler, "create", masters...) })
		h.masterWrites.await(1)
		go func() {
			for range aside {
			}
		}()
		h.close(t)
		close(aside)
	})
}

// count returns the number of taken places and of waiting requests.
func (p *places) count() (taken, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.taken, p.mu.line.Len()
}
