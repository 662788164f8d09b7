package auditlog

import (
	"container/list"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// Converter makes traces of audit events, which may arrive late, twice, in any order, and from several servers. It
// remembers the most complete event of each of the latest requests, in bounded memory. It is safe for concurrent
// use.
type Converter struct {
	world Cluster
	// remembered bounds the remembered requests, and room the bytes of the waiting traces.
	remembered, room int

	mu   sync.Mutex
	seen map[requestID]*list.Element
	// latest has values of type *request, the request of the latest event at the front.
	latest list.List
	// waiting is the memory of the waiting traces, in bytes.
	waiting int
}

// request is the remembered state of a request.
type request struct {
	id requestID
	// said is the rank of the most complete event.
	said rank
	// waits is the trace of a request whose end was not seen, and size its memory; nil otherwise.
	waits *trace.Trace
	size  int
}

const (
	// maxRemembered bounds the requests that a Converter remembers.
	maxRemembered = 100_000
	// maxWaiting bounds the memory of the traces that wait for the end of their request, in bytes.
	maxWaiting = 16 << 20
)

// NewConverter returns a Converter of a Cluster.
func NewConverter(w Cluster) *Converter {
	return &Converter{world: w, remembered: maxRemembered, room: maxWaiting, seen: map[requestID]*list.Element{}}
}

// Add reads an event of audit.k8s.io/v1. source is the file or client of the event. It returns the trace of its
// request; nil if the event adds nothing, with the reason if it is unreadable. A request has one trace; a later
// trace with the same ID is more complete, and replaces the earlier ones.
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
	// A trace without room does not wait: the trace at the end of the request replaces this one.
	if size := t.Size(); c.waiting+size <= c.room {
		r.waits, r.size = t, size
		c.waiting += size
		return nil, ""
	}
	return t, ""
}

// SetCluster sets the Cluster for later events.
func (c *Converter) SetCluster(w Cluster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.world = w
}

// settle ends the wait of a request. It returns the trace that waited, nil if none did.
func (c *Converter) settle(r *request) (t *trace.Trace) {
	t, c.waiting = r.waits, c.waiting-r.size
	r.waits, r.size = nil, 0
	return t
}

// Unanswered returns the traces of the remembered requests that were received before a time, or at any time if it is
// zero, and have no later event. It returns each once.
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
