package filters

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// The server reserves a twentieth of a request's time for its response, at most maxAnswering.
const (
	answeringShares = 20
	maxAnswering    = 100 * time.Millisecond
)

// Deadline returns a handler that gives next a little less time than the request has. The timeout
// of k8s.io/apiserver resets the stream of a request whose response is just being written. If a
// handler waited for etcd or a webhook until that timeout, its client would get no response, or a
// bare 504, by chance.
func Deadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		deadline, limited := req.Context().Deadline()
		if !limited {
			next.ServeHTTP(w, req)
			return
		}
		received, known := request.ReceivedTimestampFrom(req.Context())
		if !known {
			received = time.Now()
		}
		ctx, cancel := context.WithDeadline(req.Context(), deadline.Add(-min(deadline.Sub(received)/answeringShares, maxAnswering)))
		defer cancel()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}
