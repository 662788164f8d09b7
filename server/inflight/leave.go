package inflight

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Doorway returns a handler that lets those behind it leave creates before they
// are answered (Leave). It must be the first of the server's handlers, so that
// what all others keep for a request, their stacks above all, is gone while the
// request waits.
func (l *Limiter) Doorway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			next.ServeHTTP(w, req)
			return
		}
		answer, answered := l.enter(next, w, req)
		if answer == nil {
			return
		}
		defer l.gone.Add(-1)
		if answered {
			// Another handler, one that watches the time, was faster.
			w = &unheard{header: http.Header{}}
		}
		answer(w, req)
	})
}

// enter serves a request. It returns what is left to be done, nil if nothing is,
// and whether the request was answered all the same.
func (l *Limiter) enter(next http.Handler, w http.ResponseWriter, req *http.Request) (answer http.HandlerFunc, answered bool) {
	d := &door{limiter: l}
	watched := &watchedWriter{ResponseWriter: w}
	returned := false
	defer func() {
		if !returned && d.shut() != nil {
			l.gone.Add(-1)
		}
	}()
	w, req = responsewriter.WrapForHTTP1Or2(watched), req.WithContext(context.WithValue(req.Context(), doorKey{}, d))
	if l.gone.Load() > 0 {
		apart(next, w, req)
	} else {
		next.ServeHTTP(w, req)
	}
	returned = true
	return d.shut(), watched.answered.Load()
}

// apart serves a request in a goroutine of its own, which leaves the one that may
// have to wait a small stack. That takes time, so it is done only while others
// wait.
func apart(next http.Handler, w http.ResponseWriter, req *http.Request) {
	over := make(chan any)
	go func() {
		defer func() { over <- recover() }()
		next.ServeHTTP(w, req)
	}()
	if failure := <-over; failure != nil {
		panic(failure)
	}
}

// Leave is for a handler that is about to return without an answer. It arranges
// for answer to be called when all handlers have returned, with the request as
// it came in, on the connection's own goroutine and in no one's place. It
// returns false when that is not possible: the request did not come through
// Doorway, was given up, or too many have left. The handler must then answer by
// itself.
func Leave(ctx context.Context, answer http.HandlerFunc) bool {
	d, ok := ctx.Value(doorKey{}).(*door)
	return ok && d.leave(answer)
}

type doorKey struct{}

// door is where one request may leave, until it is shut.
type door struct {
	limiter *Limiter
	mu      struct {
		sync.Mutex
		answer http.HandlerFunc
		shut   bool
	}
}

func (d *door) leave(answer http.HandlerFunc) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.shut || d.mu.answer != nil {
		return false
	}
	if d.limiter.gone.Add(1) > int64(d.limiter.options.Yielded) {
		d.limiter.gone.Add(-1)
		return false
	}
	d.mu.answer = answer
	return true
}

func (d *door) shut() http.HandlerFunc {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.shut = true
	return d.mu.answer
}

// watchedWriter notes whether there was an answer.
type watchedWriter struct {
	http.ResponseWriter
	answered atomic.Bool
}

var _ responsewriter.UserProvidedDecorator = (*watchedWriter)(nil)

func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *watchedWriter) WriteHeader(code int) {
	w.answered.Store(true)
	w.ResponseWriter.WriteHeader(code)
}

func (w *watchedWriter) Write(data []byte) (int, error) {
	w.answered.Store(true)
	return w.ResponseWriter.Write(data)
}

// unheard is the response to a client that has one already.
type unheard struct{ header http.Header }

func (u *unheard) Header() http.Header            { return u.header }
func (u *unheard) WriteHeader(int)                {}
func (u *unheard) Write(data []byte) (int, error) { return len(data), nil }
