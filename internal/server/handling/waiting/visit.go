package waiting

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/server/httplog"
)

// ErrLeft is the error of a storage when Leave succeeded. It ends the work of k8s.io/apiserver on
// the create; no client receives it.
var ErrLeft error = apierrors.NewServiceUnavailable("the request has left its handlers, and no client receives this error")

// visit is one POST among the server's handlers.
type visit struct {
	room *Room
	mu   struct {
		sync.Mutex
		// answered is set when the handler behind Serve has begun its answer, overtaken
		// when a handler outside of Serve has.
		answered, overtaken bool
		// left is set when Leave has succeeded: the handler must not answer any more. The visit
		// then has a place in the room.
		left bool
		// closed is set when all handlers have returned. It is also set when the timeout handler
		// has returned before the others.
		closed bool
		// finish waits and answers after the handlers; nil before Finish is called.
		finish http.HandlerFunc
	}
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// Leave is for the storage of a create whose creator has to wait until the object is initialized.
// Serve must have called the handler of the create. If Leave returns true, the storage must
// return ErrLeft at once. It returns false when the request cannot leave: it did not come through
// a Doorway, it has an answer already, it has left before, or the room is full.
func Leave(ctx context.Context) bool {
	v := visitOf(ctx)
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.answered || v.mu.overtaken || v.mu.left || v.mu.closed || !v.room.enter() {
		return false
	}
	v.mu.left = true
	return true
}

// Serve calls the handler of a create, and reports whether the create has no answer because its
// storage called Leave. The caller must then call Finish, and return.
func Serve(handler http.HandlerFunc, w http.ResponseWriter, req *http.Request) (left bool) {
	v := visitOf(req.Context())
	if v == nil {
		handler(w, req)
		return false
	}
	handler(responsewriter.WrapForHTTP1Or2(&inside{ResponseWriter: w, visit: v}), req)
	if !v.hasLeft() {
		return false
	}
	if record := audited(req.Context()); record != nil {
		// k8s.io/apiserver treated ErrLeft as a response.
		record.LogResponseObject(nil, nil)
		record.SetEventResponseStatus(v.room.unanswered)
	}
	httplog.AddKeyValue(req.Context(), "left", "answered when the object is initialized")
	return true
}

func (v *visit) hasLeft() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.left
}

// mayAnswer reports whether the handler behind Serve may send a response.
func (v *visit) mayAnswer() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.left {
		return false
	}
	v.mu.answered = true
	return true
}

// overtake records that a handler outside of Serve answers, or passes an answer on.
func (v *visit) overtake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.overtaken = true
}

// whenClosed makes Doorway call finish when all handlers have returned. If Doorway has closed the
// visit already, whenClosed calls finish itself: the client has its response then.
func (v *visit) whenClosed(finish http.HandlerFunc, req *http.Request) {
	v.mu.Lock()
	closed := v.mu.closed
	if !closed {
		v.mu.finish = finish
	}
	v.mu.Unlock()
	if closed {
		finish(&httptest.ResponseRecorder{}, req)
	}
}

// close closes the visit. It returns the function that Finish was given, if any, and whether the
// client has an answer already.
func (v *visit) close() (finish http.HandlerFunc, overtaken bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.closed = true
	return v.mu.finish, v.mu.overtaken
}

// end gives back the place in the room.
func (v *visit) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.closed = true
	if v.mu.left {
		v.room.inside.Add(-1)
	}
}

// outside is the response as the server's handlers see it.
type outside struct {
	http.ResponseWriter
	visit *visit
}

// inside is the response as the handler behind Serve sees it.
type inside struct {
	http.ResponseWriter
	visit *visit
}

var _, _ responsewriter.UserProvidedDecorator = (*outside)(nil), (*inside)(nil)

func (w *outside) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *outside) WriteHeader(code int) {
	w.visit.overtake()
	w.ResponseWriter.WriteHeader(code)
}

func (w *outside) Write(data []byte) (int, error) {
	w.visit.overtake()
	return w.ResponseWriter.Write(data)
}

func (w *inside) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *inside) Header() http.Header {
	if w.visit.hasLeft() {
		return http.Header{}
	}
	return w.ResponseWriter.Header()
}

func (w *inside) WriteHeader(code int) {
	if w.visit.mayAnswer() {
		w.ResponseWriter.WriteHeader(code)
	}
}

func (w *inside) Write(data []byte) (int, error) {
	if w.visit.mayAnswer() {
		return w.ResponseWriter.Write(data)
	}
	return len(data), nil
}
