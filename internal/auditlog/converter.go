package auditlog

import (
	"container/list"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// Converter makes traces of the events of audit logs as they come: late, twice, in any order, from several
// servers. It remembers of the latest requests which event said most, and takes bounded memory. It is safe for
// concurrent use.
type Converter struct {
	world World
	// remembered is how many requests are remembered, and room how many bytes the traces that wait may take.
	remembered, room int

	mu   sync.Mutex
	seen map[requestID]*list.Element
	// latest has the requests, those of the latest events in front, as *request.
	latest list.List
	// waiting is the memory of the traces that wait, in bytes.
	waiting int
}

// request is what is remembered of one.
type request struct {
	id requestID
	// said is of the event that said most.
	said rank
	// waits is the trace of a request whose end was not seen, and size its memory; nil for others.
	waits *trace.Trace
	size  int
}

const (
	// maxRemembered is how many requests a Converter remembers.
	maxRemembered = 100_000
	// maxWaiting bounds the memory of the traces that wait for the ends of their requests, in bytes.
	maxWaiting = 16 << 20
)

// NewConverter returns a Converter that knows a World.
func NewConverter(w World) *Converter {
	return &Converter{world: w, remembered: maxRemembered, room: maxWaiting, seen: map[requestID]*list.Element{}}
}

// Add reads an event of audit.k8s.io/v1. source names where it was read. It returns the trace of its request, nil if
// the event adds nothing, with the reason if it is not readable. A request has
// one trace; a later one of the same ID says more than those before it, and replaces them.
func (c *Converter) Add(data []byte, source string) (t *trace.Trace, why string) {
	e, why := decode(data, source)
	if e == nil {
		return nil, why
	}
	id, said := e.id(), e.rank(data)
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.seen[id]
	if element != nil {
		c.latest.MoveToFront(element)
		if r := element.Value.(*request); said.compare(r.said) <= 0 {
			return nil, ""
		}
	} else {
		element = c.latest.PushFront(&request{id: id})
		c.seen[id] = element
		if c.latest.Len() > c.remembered {
			oldest := c.latest.Remove(c.latest.Back()).(*request)
			c.settle(oldest)
			delete(c.seen, oldest.id)
		}
	}
	r := element.Value.(*request)
	c.settle(r)
	r.said = said
	t = convert(e, c.world)
	if e.Stage != auditv1.StageRequestReceived {
		return t, ""
	}
	// What has no room does not wait: a trace of the end replaces this one.
	if size := t.Size(); c.waiting+size <= c.room {
		r.waits, r.size = t, size
		c.waiting += size
		return nil, ""
	}
	return t, ""
}

// SetWorld has later events be read with another World.
func (c *Converter) SetWorld(w World) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.world = w
}

// settle has a request wait no longer. It returns the trace that waited, nil if none did.
func (c *Converter) settle(r *request) (t *trace.Trace) {
	t, c.waiting = r.waits, c.waiting-r.size
	r.waits, r.size = nil, 0
	return t
}

// Unanswered returns the traces of the remembered requests that were received before a time, any if it is zero,
// and of which no later event came. It returns each once.
func (c *Converter) Unanswered(before time.Time) (list []*trace.Trace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.latest.Back(); e != nil; e = e.Prev() {
		if r := e.Value.(*request); r.waits != nil && (before.IsZero() || r.waits.Start.Before(before)) {
			list = append(list, c.settle(r))
		}
	}
	return list
}
