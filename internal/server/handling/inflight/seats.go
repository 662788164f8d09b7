package inflight

import (
	"context"
	"net/http"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// Fair is the API priority and fairness of k8s.io/apiserver, in which a request that waits for a
// request of another client gives back its seats meanwhile. The filter of k8s.io/apiserver calls
// Handle; Reserve must come before that filter.
//
// k8s.io/apiserver holds the seats of a request until a function returns. So Handle lets a goroutine
// hold the seats of a write or a list, and handles the request on its own.
type Fair struct {
	flowcontrol.Interface
	// Delegated reports whether a request is for another server, which has its own bound.
	Delegated func(ctx context.Context, info *request.RequestInfo) bool
}

// Reserve lets the requests behind it give back their seats, and end their connections. It must
// come before handlers that answer a request while others still handle it.
func Reserve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s := &seats{}
		s.client.response = w
		defer s.leave()
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), seatsKey{}, s)))
	})
}

type seatsKey struct{}

// seats are the seats of one request. Calls of webhooks may give them back at the same time.
type seats struct {
	client struct {
		sync.Mutex
		// response is nil when the request is over: its connection may already serve the next
		// request.
		response http.ResponseWriter
	}
	mu sync.Mutex
	// take waits for the seats, and reports whether the request has them; nil if the request has
	// none. giveBack is nil while the request has none.
	take     func() bool
	giveBack func()
}

// connection calls a function with the connection of the request, unless the request is over.
func (s *seats) connection(act func(*http.ResponseController) error) {
	if s == nil {
		return
	}
	s.client.Lock()
	defer s.client.Unlock()
	if s.client.response != nil {
		// A closed connection need not be ended.
		_ = act(http.NewResponseController(s.client.response))
	}
}

func (s *seats) leave() {
	s.client.Lock()
	defer s.client.Unlock()
	s.client.response = nil
}

// release gives back the seats of a request that has some.
func (s *seats) release() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.giveBack != nil {
		defer s.giveBack()
		s.giveBack = nil
	}
}

// takeAgain queues for the seats again. A request whose time to queue is over continues without
// them.
func (s *seats) takeAgain() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.take != nil && s.giveBack == nil {
		s.take()
	}
}

// Handle implements flowcontrol.Interface.
func (f *Fair) Handle(ctx context.Context, digest flowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() flowcontrolrequest.WorkEstimate, queued fairqueuing.QueueNoteFn, execute func()) {
	if f.Delegated(ctx, digest.RequestInfo) {
		execute()
		return
	}
	s, _ := ctx.Value(seatsKey{}).(*seats)
	master, _ := rank(ctx)
	if s == nil || master || !waits(digest.RequestInfo) {
		f.Interface.Handle(ctx, digest, note, estimate, queued, execute)
		return
	}
	estimate = sync.OnceValue(estimate)
	s.take = func() bool {
		taken, given, ended := make(chan struct{}), make(chan struct{}), make(chan any, 1)
		noted := note
		go func() {
			defer func() { ended <- recover() }()
			f.Interface.Handle(ctx, digest, noted, estimate, queued, func() {
				close(taken)
				<-given
			})
		}()
		// The request is classified once for its answer and its log.
		note = func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {}
		select {
		case <-taken:
			s.giveBack = func() {
				close(given)
				rethrow(<-ended)
			}
			return true
		case fault := <-ended:
			rethrow(fault)
			return false
		}
	}
	defer s.release()
	if s.take() {
		execute()
	}
}

// rethrow continues a panic of another goroutine.
func rethrow(fault any) {
	if fault != nil {
		panic(fault)
	}
}

// waits reports whether a request may wait for others: writes wait for webhooks and initializers,
// and lists wait for a cache.
func waits(info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.Verb != "get" && info.Verb != "watch"
}
