package inflight

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	// Reads and Writes bound the read-only requests and the writes that are handled at once.
	Reads, Writes int
	// Yielded bounds the requests that gave back their place and continue; requests beyond it keep
	// theirs.
	Yielded int
	// Fair means that Fair bounds requests, except requests of system:masters. These are counted
	// here, and never refused.
	Fair bool
	// MaxBody bounds the body of a request for a resource, in bytes.
	MaxBody int64
	// LongRunning reports which requests do not count, above all watches.
	LongRunning request.LongRunningRequestCheck
	// Serializer writes errors.
	Serializer runtime.NegotiatedSerializer
}

// Limiter bounds the requests of one server. It is safe for concurrent use.
type Limiter struct {
	options Options
	// reads and writes are the places of ordinary users; masterReads and masterWrites are the
	// places of system:masters.
	reads, writes             places
	masterReads, masterWrites places
	yielded                   atomic.Int64
	// arriving has the bodies of requests that have no place yet.
	arriving budget
}

// mastersAside bounds, for each place, how many requests of system:masters may be admitted from the
// line because others stepped aside. More would wait for the same webhooks, and for no longer than
// the timeouts of these.
const mastersAside = 5

// New returns a Limiter.
func New(o Options) *Limiter {
	return &Limiter{
		options: o, arriving: budget{limit: maxArriving},
		reads: places{limit: o.Reads, maxAside: o.Reads}, writes: places{limit: o.Writes, maxAside: o.Yielded},
		masterReads: places{limit: o.Reads, maxAside: o.Reads}, masterWrites: places{limit: o.Writes, maxAside: mastersAside * o.Writes},
	}
}

// Limit returns a handler that bounds the requests that next handles at once, and answers 429 when
// all places are taken. Requests of system:masters have as many places of their own, and wait for
// one as long as the requests may last: thousands that are handled at once would block each other,
// and the reads that their admission needs. Some requests need no place: the server's own requests,
// which others wait for, and requests of system:masters that are for no resource, such as /metrics,
// or for resources that configure webhooks, so that a webhook that blocks all requests can be
// removed. Limit must come after authentication.
func (l *Limiter) Limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || l.options.LongRunning(req, info) {
			next.ServeHTTP(w, req)
			return
		}
		master, own := rank(req.Context())
		mutating := mutates(info)
		if own || master && (!info.IsResourceRequest || registersWebhooks(info)) {
			if mutating {
				// It has no place to give back, but may have its turn at an object.
				p := &place{limiter: l}
				p.state.Store(left)
				req = req.WithContext(context.WithValue(req.Context(), placeKey{}, p))
			}
			next.ServeHTTP(w, req)
			return
		}
		taken, got := l.admit(req.Context(), mutating, master)
		if !got {
			l.refuse(apierrors.NewTooManyRequests("too many concurrent requests, please try again later", 1), w, req, info)
			return
		}
		p := &place{limiter: l, taken: taken}
		if !master {
			p.seats, _ = req.Context().Value(seatsKey{}).(*seats)
		}
		defer p.leave()
		if !mutating && info.Verb != "list" {
			// Such a request waits for no webhook and no initializer, and keeps its place.
			next.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), placeKey{}, p)))
	})
}

// refuse answers a request that is not handled.
func (l *Limiter) refuse(err *apierrors.StatusError, w http.ResponseWriter, req *http.Request, info *request.RequestInfo) {
	if apierrors.IsTooManyRequests(err) {
		metrics.RecordDroppedRequest(req, info, metrics.APIServerComponent, mutates(info))
	}
	metrics.RecordRequestTermination(req, info, metrics.APIServerComponent, int(err.ErrStatus.Code))
	responsewriters.ErrorNegotiated(err, l.options.Serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
}

// mutates reports whether a request is a write.
func mutates(info *request.RequestInfo) bool {
	return info.Verb != "get" && info.Verb != "list" && info.Verb != "watch"
}

// registersWebhooks reports whether a request is for a registration of webhooks, of admission or of
// conversion.
func registersWebhooks(info *request.RequestInfo) bool {
	return info.APIGroup == admissionregistrationv1.GroupName || info.APIGroup == apiextensionsv1.GroupName
}

// admit takes a place for a request, and returns the places it was taken from.
func (l *Limiter) admit(ctx context.Context, mutating, master bool) (taken *places, ok bool) {
	switch {
	case master && mutating:
		return &l.masterWrites, l.masterWrites.wait(ctx)
	case master:
		return &l.masterReads, l.masterReads.wait(ctx)
	case mutating:
		taken = &l.writes
	default:
		taken = &l.reads
	}
	if l.options.Fair {
		taken.takeAnyway()
		return taken, true
	}
	return taken, taken.try()
}

// rank reports whether a request comes from a member of system:masters, and whether the server
// itself sent it.
func rank(ctx context.Context) (master, own bool) {
	u, ok := request.UserFrom(ctx)
	if !ok || !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return false, false
	}
	return true, u.GetName() == user.APIServerUser
}

// place is held by a request while the request is handled.
type place struct {
	limiter *Limiter
	taken   *places
	// seats are the request's seats of Fair; nil for none.
	seats *seats
	state atomic.Int32
	// update is the latest update of an object for which the request has, or had, the turn.
	update atomic.Pointer[Update]
}

const (
	held = iota
	yielded
	left
)

type placeKey struct{}

// Yield gives back the place of the write or list that ctx belongs to, which continues without one.
// It does nothing if the place was given back before, if there is no place to give back, or if too
// many requests have yielded. Other updates of the object that the request updates do not wait for
// it any more.
func Yield(ctx context.Context) {
	if p, ok := ctx.Value(placeKey{}).(*place); ok {
		p.leaveLines()
		p.yield()
	}
}

// StepAside is a temporary Yield: the function that it returns takes the place again, and must be
// called. It does so even when all places are taken; new requests then wait longer. A turn at an
// object is not taken again.
func StepAside(ctx context.Context) (back func()) {
	if p, ok := ctx.Value(placeKey{}).(*place); ok {
		p.leaveLines()
		if back := p.stepAside(); back != nil {
			return back
		}
	}
	return func() {}
}

// Aside calls wait while the request that ctx belongs to has no place, and reports
// whether it did: it does not when the request cannot give back its place because too
// many have done so. Reads may wait as well as writes.
func Aside(ctx context.Context, wait func()) bool {
	p, ok := ctx.Value(placeKey{}).(*place)
	if ok {
		p.leaveLines()
	}
	if ok && p.state.Load() == held {
		back := p.stepAside()
		if back == nil {
			return false
		}
		defer back()
	}
	wait()
	return true
}

// stepAside gives back the place temporarily. The result takes the place again; it is nil if the
// request has no place to give back, or if too many requests have stepped aside.
func (p *place) stepAside() (back func()) {
	if p.state.Load() != held || !p.taken.stepAside() {
		return nil
	}
	if !p.yield() {
		p.taken.comeBack()
		return nil
	}
	return sync.OnceFunc(func() {
		p.takeAgain()
		p.taken.comeBack()
	})
}

func (p *place) yield() bool {
	l := p.limiter
	if l.yielded.Add(1) > int64(l.options.Yielded) || !p.state.CompareAndSwap(held, yielded) {
		l.yielded.Add(-1)
		return false
	}
	p.taken.give()
	p.seats.release()
	return true
}

func (p *place) takeAgain() {
	if p.state.CompareAndSwap(yielded, held) {
		p.taken.takeAnyway()
		p.limiter.yielded.Add(-1)
		p.seats.takeAgain()
	}
}

func (p *place) leave() {
	if p.state.Swap(left) == yielded {
		p.limiter.yielded.Add(-1)
		return
	}
	p.taken.give()
}
