package inflight

import (
	"container/list"
	"context"
	"errors"
	"path"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// maxLine bounds the waiting updates of one object.
	maxLine = 100
	// maxHead is how long an update keeps the next one of its object waiting. This ends the wait of
	// an update for another one of the same object that StepAside does not detect.
	maxHead = 5 * time.Second
)

// Lines serialize the updates of one object. Without them, concurrent updates all read the object,
// and all except one of them have to read it again after each write. The zero value is ready. Lines
// are safe for concurrent use.
type Lines struct {
	mu sync.Mutex
	// lines has a line for each object that is being updated.
	lines map[string]*line
}

// line is the queue of updates of one object.
type line struct {
	head *Update
	// waiting has the Updates behind the head.
	waiting list.List
}

// Update is an update of one object that has the turn.
type Update struct {
	lines *Lines
	key   string
	// granted is closed when a waiting update has its turn.
	granted chan struct{}
	// last is the object that the previous update stored; nil if it is not known.
	last runtime.Object
	// overdue ends the turn when another update has waited for too long; nil while none waits.
	overdue *time.Timer
	// outer is the turn that the same request has at another object.
	outer *Update
	place *place
}

// Enter waits until it is the turn of an update of the object with a key. Meanwhile a request for
// that object has no place. The turn ends with Leave, or when the request steps aside (S27.8). The
// error is 429 if too many requests for the object wait, or a timeout. End must be called unless
// there is an error.
func (l *Lines) Enter(ctx context.Context, key string) (*Update, error) {
	u := &Update{lines: l, key: key}
	u.place, _ = ctx.Value(placeKey{}).(*place)
	named := names(ctx, key)
	wait, err := l.join(u, named)
	if err != nil {
		return nil, err
	}
	if wait != nil {
		back := func() {}
		if named {
			back = StepAside(ctx)
		}
		err := u.await(ctx, wait)
		back()
		if err != nil {
			return nil, err
		}
	}
	if u.place != nil {
		u.outer = u.place.update.Load()
		u.place.update.Store(u)
	}
	return u, nil
}

// names reports whether a client's request is for the object with a key. Other requests change an
// object indirectly, such as the allocated node ports: they are bounded by places, and they keep
// these.
func names(ctx context.Context, key string) bool {
	info, ok := request.RequestInfoFrom(ctx)
	_, own := rank(ctx)
	return ok && !own && info.Name != "" && info.Name == path.Base(key)
}

// join puts an update at the end of its line. The result is nil if it has its turn at once.
func (l *Lines) join(u *Update, bounded bool) (wait *list.Element, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.lines[u.key]
	switch {
	case q == nil:
		if l.lines == nil {
			l.lines = map[string]*line{}
		}
		l.lines[u.key] = &line{head: u}
		return nil, nil
	case bounded && q.waiting.Len() >= maxLine:
		return nil, apierrors.NewTooManyRequests("too many requests wait to change this object, please try again later", 1)
	}
	u.granted = make(chan struct{})
	wait = q.waiting.PushBack(u)
	if q.head.overdue == nil {
		q.head.limit()
	}
	return wait, nil
}

// limit bounds the turn from now on; mu is held.
func (u *Update) limit() { u.overdue = time.AfterFunc(maxHead, u.leave) }

func (u *Update) await(ctx context.Context, wait *list.Element) error {
	select {
	case <-u.granted:
		return nil
	case <-ctx.Done():
	}
	u.lines.mu.Lock()
	select {
	case <-u.granted:
	default:
		u.lines.lines[u.key].waiting.Remove(wait)
	}
	u.lines.mu.Unlock()
	u.leave()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return apierrors.NewTimeoutError("the time of the request was over before its turn to change the object, which it has not changed", 0)
	}
	return ctx.Err()
}

// Last returns the object that the previous update stored, for this update alone; nil if it is not
// known. Another client may have changed the object since.
func (u *Update) Last() runtime.Object { return u.last }

// Leave ends the turn of an update that has stored an object. The next update gets a copy of the
// object.
func (u *Update) Leave(stored runtime.Object) {
	u.lines.mu.Lock()
	q := u.lines.lines[u.key]
	wanted := q != nil && q.head == u && q.waiting.Len() > 0
	u.lines.mu.Unlock()
	if !wanted {
		// An update in between reads the object itself.
		u.leave()
		return
	}
	u.pass(stored.DeepCopyObject())
}

// End ends the turn if it has not ended.
func (u *Update) End() {
	u.leave()
	if u.place != nil {
		u.place.update.CompareAndSwap(u, u.outer)
	}
}

func (u *Update) leave() { u.pass(nil) }

func (u *Update) pass(last runtime.Object) {
	l := u.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.lines[u.key]
	if q == nil || q.head != u {
		return
	}
	if u.overdue != nil {
		u.overdue.Stop()
	}
	first := q.waiting.Front()
	if first == nil {
		delete(l.lines, u.key)
		return
	}
	q.head = q.waiting.Remove(first).(*Update)
	q.head.last = last
	if q.waiting.Len() > 0 {
		q.head.limit()
	}
	close(q.head.granted)
}

// leaveLines ends the turns that a request has at objects.
func (p *place) leaveLines() {
	for u := p.update.Load(); u != nil; u = u.outer {
		u.leave()
	}
}
