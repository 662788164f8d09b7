package inflight

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

const (
	// maxArriving bounds, in bytes, the bodies that are read before their requests have a place.
	maxArriving = 128 << 20
	// arrivalCost is added to the body of each such request, for its goroutines and its connection.
	arrivalCost = 16 << 10
	// arrivalTime is how long a body may take to arrive.
	arrivalTime = 30 * time.Second
	// The client has pieceTime to take each pieceSize bytes of an answer.
	pieceSize = 64 << 10
	pieceTime = 5 * time.Second
)

// Serve returns a handler in front of places and seats that bounds the resources that slow clients
// hold. It reads bodies before requests have a place (S27.6), and ends responses that clients do
// not read (S27.7). It must come after authentication, and Reserve before all handlers that answer.
func (l *Limiter) Serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || l.options.LongRunning(req, info) {
			next.ServeHTTP(w, req)
			return
		}
		s, _ := req.Context().Value(seatsKey{}).(*seats)
		if mutates(info) && req.Body != nil && req.ContentLength != 0 {
			body, err := l.receive(req, s)
			if err != nil {
				l.refuse(err, w, req, info)
				return
			}
			defer body.end()
			req.Body = body
		}
		a := &answer{ResponseWriter: w, seats: s}
		defer a.end()
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(a), req)
	})
}

// arrived is a body that has been read.
type arrived struct {
	io.Reader
	body io.Closer
	// end releases the bytes when they have been read.
	end func()
}

func (a *arrived) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if err != nil {
		// The request may last much longer than its bytes are needed.
		a.Reader = failing{err}
		a.end()
	}
	return n, err
}

func (a *arrived) Close() error {
	a.end()
	return a.body.Close()
}

// failing is a body that fails every further read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// receive reads the body of a request. It reads no more than a resource may have: the handler that
// reads the result finds the rest behind that. Members of system:masters wait for a place and are
// never refused. Their body stays unread when there is no room for it.
func (l *Limiter) receive(req *http.Request, s *seats) (*arrived, *apierrors.StatusError) {
	u, _ := request.UserFrom(req.Context())
	name := ""
	if u != nil {
		name = u.GetName()
	}
	var held int64
	hold := func(n int64) bool {
		taken := l.arriving.take(name, n)
		if taken {
			held += n
		}
		return taken
	}
	a := &arrived{body: req.Body, Reader: req.Body, end: sync.OnceFunc(func() { l.arriving.give(name, held) })}
	full := func() (*arrived, *apierrors.StatusError) {
		if master, _ := rank(req.Context()); master {
			return a, nil
		}
		a.end()
		return nil, apierrors.NewTooManyRequests("too many bytes of requests wait to be handled, please try again later", 1)
	}
	if !hold(arrivalCost + min(max(req.ContentLength, 0), l.options.MaxBody)) {
		return full()
	}
	patience := arrivalTime
	if deadline, ok := req.Context().Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	timer := time.AfterFunc(patience, func() { s.connection(func(c *http.ResponseController) error { return c.SetReadDeadline(past) }) })
	data, err := l.read(req, hold)
	late := !timer.Stop()
	read := bytes.NewReader(data)
	switch {
	case late:
		// The connection has ended, or is about to.
		a.end()
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("the body of the request did not arrive within %s", patience.Round(time.Millisecond)), 0)
	case errors.Is(err, errFull):
		a.Reader = io.MultiReader(read, req.Body)
		return full()
	case errors.Is(err, io.EOF):
		a.Reader = read
	case err != nil:
		// The handler that reads the body explains the error.
		a.Reader = io.MultiReader(read, failing{err})
	default:
		a.Reader = io.MultiReader(read, req.Body)
	}
	return a, nil
}

// past is a time in the past.
var past = time.Unix(1, 0)

// errFull means that there is no room for more bytes.
var errFull = errors.New("no room for the body")

// read reads a body to its end, with io.EOF, or to one byte more than a resource may have. It calls
// hold before it uses memory for bytes that the header has not announced.
func (l *Limiter) read(req *http.Request, hold func(int64) bool) (data []byte, err error) {
	const first = 32 << 10
	known := req.ContentLength > 0
	most := int(l.options.MaxBody) + 1
	size := first
	if known {
		// The additional byte detects the end.
		size = int(min(req.ContentLength+1, first))
	} else if !hold(first) {
		return nil, errFull
	}
	data = make([]byte, 0, min(size, most))
	for len(data) < most {
		if len(data) == cap(data) {
			more := min(cap(data), most-cap(data))
			if !known && !hold(int64(more)) {
				return data, errFull
			}
			data = slices.Grow(data, more)
		}
		n, err := req.Body.Read(data[len(data):min(cap(data), most)])
		if data = data[:len(data)+n]; err != nil {
			return data, err
		}
	}
	return data, nil
}

// budget is a number of bytes that users share. Its zero value has none.
type budget struct {
	limit int64

	mu    sync.Mutex
	held  int64
	users map[string]int64
}

// take reserves bytes for a user. It fails if the user would then hold more than the room left for
// all other users.
func (b *budget) take(user string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users[user]+n > b.limit-b.held-n {
		return false
	}
	b.add(user, n)
	return true
}

// takeAnyway reserves bytes for a user even if there are too few.
func (b *budget) takeAnyway(user string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(user, n)
}

// add counts bytes; mu is held.
func (b *budget) add(user string, n int64) {
	if b.users == nil {
		b.users = map[string]int64{}
	}
	b.users[user] += n
	b.held += n
}

// give releases bytes.
func (b *budget) give(user string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.users[user] -= n; b.users[user] <= 0 {
		delete(b.users, user)
	}
}

// answer ends the connection or the stream of a client that does not read its response. The timeout
// handler of k8s.io/apiserver cannot do that: it waits for a write that has begun.
type answer struct {
	http.ResponseWriter
	seats *seats

	mu sync.Mutex
	// began is when the running write began; zero if no write is running.
	began time.Time
	ended bool
	// watch checks the write periodically; nil before the first write.
	watch *time.Timer
}

var _ responsewriter.UserProvidedDecorator = (*answer)(nil)

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) Write(data []byte) (written int, err error) {
	for {
		piece := data[:min(len(data), pieceSize)]
		a.note(time.Now())
		n, err := a.ResponseWriter.Write(piece)
		a.note(time.Time{})
		written += n
		if data = data[len(piece):]; err != nil || len(data) == 0 {
			return written, err
		}
	}
}

func (a *answer) note(began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began = began
	if a.watch == nil {
		a.watch = time.AfterFunc(pieceTime, a.look)
	}
}

// look ends a write that takes too long, or schedules the next check.
func (a *answer) look() {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := pieceTime
	if !a.began.IsZero() {
		left -= time.Since(a.began)
	}
	switch {
	case a.ended:
	case left > 0:
		a.watch.Reset(left)
	default:
		a.seats.connection(func(c *http.ResponseController) error { return c.SetWriteDeadline(past) })
	}
}

func (a *answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended = true; a.watch != nil {
		a.watch.Stop()
	}
}
