package traces

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// Ring keeps the latest traces. It is safe for concurrent use.
type Ring struct {
	bound int
	// first is the version of the ring when it was empty.
	first int64

	mu struct {
		sync.Mutex
		// version is the version of the latest entry. It starts with the time, so that the
		// version of a client that saw an earlier run of the server is lower, and not higher.
		version        int64
		byID           map[string]*entry
		plain, notable queue
		// dropped counts the traces that had no room.
		dropped  int
		watchers map[*watcher]struct{}
	}
}

// entry is a trace in the ring. The ring's mutex guards its fields.
type entry struct {
	trace   *trace.Trace
	version int64
	size    int
	notable bool
}

// queue is a list of entries, in the order of their versions.
type queue struct {
	entries []*entry
	bytes   int
}

// NewRing returns a ring that holds at most about bound bytes.
func NewRing(bound int) *Ring {
	r := &Ring{bound: bound, first: time.Now().UnixMicro()}
	r.mu.version = r.first
	r.mu.byID = map[string]*entry{}
	r.mu.watchers = map[*watcher]struct{}{}
	return r
}

// Add keeps a trace, with the steps that are added to it later, in place of a trace of the same ID. A trace that is
// larger than the whole ring is left out.
func (r *Ring) Add(t *trace.Trace) {
	steps := t.Len()
	e := &entry{trace: t, size: t.Size(), notable: t.Outcome() != trace.OutcomeAllowed}
	r.mu.Lock()
	if e.size <= r.bound {
		event := watch.Added
		if old := r.mu.byID[t.ID]; old != nil {
			r.queue(old).remove(old)
			event = watch.Modified
		}
		r.mu.byID[t.ID] = e
		r.push(e, event)
	}
	r.mu.Unlock()
	t.Late(func() { r.grown(e) })
	if t.Len() > steps {
		r.grown(e)
	}
}

// grown notes that a trace in the ring has more steps. The trace becomes the newest one.
func (r *Ring) grown(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.byID[e.trace.ID] != e {
		return
	}
	r.queue(e).remove(e)
	e.size, e.notable = e.trace.Size(), e.trace.Outcome() != trace.OutcomeAllowed
	r.push(e, watch.Modified)
}

// push makes a trace the newest one, notifies watchers and makes room. The oldest plain traces are
// dropped first, except when notable traces take more than half of the room: then the oldest of
// these. The lock is held.
func (r *Ring) push(e *entry, event watch.EventType) {
	r.mu.version++
	e.version = r.mu.version
	q := r.queue(e)
	q.entries = append(q.entries, e)
	q.bytes += e.size
	r.tell(event, e)
	for r.mu.plain.bytes+r.mu.notable.bytes > r.bound {
		from := &r.mu.plain
		if r.mu.notable.bytes > r.bound/2 || len(from.entries) == 0 {
			from = &r.mu.notable
		}
		oldest := from.entries[0]
		from.remove(oldest)
		delete(r.mu.byID, oldest.trace.ID)
		r.mu.dropped++
		r.tell(watch.Deleted, oldest)
	}
}

func (r *Ring) queue(e *entry) *queue {
	if e.notable {
		return &r.mu.notable
	}
	return &r.mu.plain
}

// remove removes an entry that the queue has.
func (q *queue) remove(e *entry) {
	q.bytes -= e.size
	i, _ := slices.BinarySearchFunc(q.entries, e.version, func(e *entry, version int64) int { return cmp.Compare(e.version, version) })
	if i == 0 {
		q.entries[0] = nil
		q.entries = q.entries[1:]
		return
	}
	q.entries = slices.Delete(q.entries, i, i+1)
}

// Bytes returns the approximate size of the traces, in bytes.
func (r *Ring) Bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.plain.bytes + r.mu.notable.bytes
}

// Dropped returns how many traces were removed to make room.
func (r *Ring) Dropped() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.dropped
}

// kept is a copy of a trace in the ring.
type kept struct {
	trace   *trace.Trace
	version int64
}

// get returns the trace with an ID.
func (r *Ring) get(id string) (kept, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.mu.byID[id]
	if !ok {
		return kept{}, false
	}
	return kept{e.trace, e.version}, true
}

// list returns all traces, oldest first, and the version of the ring.
func (r *Ring) list() ([]kept, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since(0), r.mu.version
}

func (r *Ring) version() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.version
}

// since returns the traces that were added after a version, oldest first. The lock is held.
func (r *Ring) since(version int64) []kept {
	var list []kept
	for _, q := range []*queue{&r.mu.plain, &r.mu.notable} {
		for _, e := range q.entries {
			if e.version > version {
				list = append(list, kept{e.trace, e.version})
			}
		}
	}
	slices.SortFunc(list, func(a, b kept) int { return cmp.Compare(a.version, b.version) })
	return list
}

// Handler returns a handler that keeps the traces of the requests that next handles. Without a
// ring it returns next.
func (r *Ring) Handler(next http.Handler) http.Handler {
	if r == nil {
		return next
	}
	return admission.Traced(next, r.Add)
}
