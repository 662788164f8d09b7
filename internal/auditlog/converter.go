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
	// remembered is how many requests are remembered.
	remembered int

	mu   sync.Mutex
	seen map[string]*list.Element
	// latest has the requests, those of the latest events in front, as *request.
	latest list.List
}

// request is what is remembered of one.
type request struct {
	id string
	// said is of the event that said most.
	said rank
	// waits is the trace of a request whose end was not seen; nil for others.
	waits *trace.Trace
}

// maxRemembered is how many requests a Converter remembers.
const maxRemembered = 100_000

// NewConverter returns a Converter that knows a World.
func NewConverter(w World) *Converter {
	return &Converter{world: w, remembered: maxRemembered, seen: map[string]*list.Element{}}
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
			delete(c.seen, c.latest.Remove(c.latest.Back()).(*request).id)
		}
	}
	r := element.Value.(*request)
	r.said, r.waits = said, nil
	t = convert(e, c.world)
	if e.Stage == auditv1.StageRequestReceived {
		r.waits = t
		return nil, ""
	}
	return t, ""
}

// Unanswered returns the traces of the remembered requests that were received before a time, any if it is zero,
// and of which no later event came. It returns each once.
func (c *Converter) Unanswered(before time.Time) (list []*trace.Trace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.latest.Back(); e != nil; e = e.Prev() {
		if r := e.Value.(*request); r.waits != nil && (before.IsZero() || r.waits.Start.Before(before)) {
			list = append(list, r.waits)
			r.waits = nil
		}
	}
	return list
}
