package waiting

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Room has the creates of one server that have left its handlers and wait. NewRoom makes it. It is
// safe for concurrent use.
type Room struct {
	limit  int64
	inside atomic.Int64
	// unanswered marks the audit record of a request that has left.
	unanswered *metav1.Status
}

// NewRoom returns a Room for at most limit requests at the same time.
func NewRoom(limit int) *Room {
	return &Room{limit: int64(limit), unanswered: &metav1.Status{Message: "not yet answered"}}
}

// Doorway returns a handler that lets creates leave the handlers behind it. It must be the first
// of the server's handlers, so that the memory that the other handlers hold for a request is free
// while the request waits.
func (r *Room) Doorway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			next.ServeHTTP(w, req)
			return
		}
		v := &visit{room: r}
		defer v.end()
		v.pass(next, w, req)
		if finish, answered := v.close(); finish != nil {
			if answered {
				// The response is discarded.
				w = &httptest.ResponseRecorder{}
			}
			finish(w, req)
		}
	})
}

// enter takes a place in the room.
func (r *Room) enter() bool {
	if r.inside.Add(1) > r.limit {
		r.inside.Add(-1)
		return false
	}
	return true
}

// pass calls the other handlers. It is a separate function so that no data of it stays on the
// stack.
func (v *visit) pass(next http.Handler, w http.ResponseWriter, req *http.Request) {
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&outside{ResponseWriter: w, visit: v}),
		req.WithContext(context.WithValue(req.Context(), visitKey{}, v)))
}
