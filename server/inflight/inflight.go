package inflight

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Options configure a Limiter. All fields must be set.
type Options struct {
	// Reads and Writes bound the requests that only read and those that write.
	Reads, Writes int
	// Yielded bounds the requests that gave back their place and go on; those
	// beyond it keep theirs. As many may leave.
	Yielded int
	// LongRunning tells which requests do not count, watches above all.
	LongRunning request.LongRunningRequestCheck
	// Serializer writes errors.
	Serializer runtime.NegotiatedSerializer
}

// Limiter bounds the requests of one server. It is safe for concurrent use.
type Limiter struct {
	options       Options
	reads, writes atomic.Int64
	yielded       atomic.Int64
	gone          atomic.Int64
}

// New returns a Limiter.
func New(o Options) *Limiter { return &Limiter{options: o} }

// Limit returns a handler that passes on as many requests at once as may be, and
// answers 429 to those that come when all places are taken. Members of
// system:masters always get in. It must come after authentication.
func (l *Limiter) Limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || l.options.LongRunning(req, info) {
			next.ServeHTTP(w, req)
			return
		}
		taken, limit, mutating := &l.writes, l.options.Writes, true
		if info.Verb == "get" || info.Verb == "list" || info.Verb == "watch" {
			taken, limit, mutating = &l.reads, l.options.Reads, false
		}
		if taken.Add(1) > int64(limit) && !privileged(req.Context()) {
			taken.Add(-1)
			metrics.RecordDroppedRequest(req, info, metrics.APIServerComponent, mutating)
			metrics.RecordRequestTermination(req, info, metrics.APIServerComponent, http.StatusTooManyRequests)
			responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests("too many requests at once, please try again later", 1),
				l.options.Serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
			return
		}
		p := &place{limiter: l, taken: taken}
		defer p.leave()
		if !mutating {
			next.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), placeKey{}, p)))
	})
}

func privileged(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// place is what a request holds while it is handled.
type place struct {
	limiter *Limiter
	taken   *atomic.Int64
	state   atomic.Int32
}

const (
	held = iota
	yielded
	left
)

type placeKey struct{}

// Yield gives back the place of the write that ctx belongs to, which goes on
// without one. It does nothing when that is done already, when there is no place
// to give back, and when too many requests have done so.
func Yield(ctx context.Context) {
	if p, ok := ctx.Value(placeKey{}).(*place); ok {
		p.yield()
	}
}

// StepAside is Yield for a while: the function it returns takes the place again.
// It does so also when all places are taken; newcomers then wait the longer.
func StepAside(ctx context.Context) (back func()) {
	p, ok := ctx.Value(placeKey{}).(*place)
	if !ok || !p.yield() {
		return func() {}
	}
	return p.takeAgain
}

func (p *place) yield() bool {
	l := p.limiter
	if l.yielded.Add(1) > int64(l.options.Yielded) || !p.state.CompareAndSwap(held, yielded) {
		l.yielded.Add(-1)
		return false
	}
	p.taken.Add(-1)
	return true
}

func (p *place) takeAgain() {
	if p.state.CompareAndSwap(yielded, held) {
		p.taken.Add(1)
		p.limiter.yielded.Add(-1)
	}
}

func (p *place) leave() {
	if p.state.Swap(left) == yielded {
		p.limiter.yielded.Add(-1)
		return
	}
	p.taken.Add(-1)
}
