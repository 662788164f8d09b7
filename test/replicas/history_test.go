package replicas

import (
	"fmt"
	"sync"
	"time"
)

// registration is a write of what requests are judged by: a registration, or a param of
// a policy. Of each there is, the versions go up.
type registration struct {
	hook    string
	version int
	// server is that through which it was written.
	server int
	// revision is the resourceVersion that the acknowledgement has; 0 for a param, which
	// the revision of a judgement says nothing about.
	revision     int64
	acknowledged time.Time
}

// judgement is a write that admission judged.
type judgement struct {
	server int
	began  time.Time
	// revision is what the response's header says.
	revision int64
	// versions are those that it was judged by.
	versions map[string]int
	// created is the object that it made; empty when it was rejected. answer is what the client got.
	created, answer string
}

// history is what was seen. It is safe for concurrent use.
type history struct {
	mu            sync.Mutex
	registrations []registration
	judgements    []judgement
	// unknown are the versions of writes whose acknowledgement was lost: they may
	// come into effect later, after writes that were acknowledged.
	unknown map[string]map[int]bool
	// refused counts writes that were not judged, by what they were answered.
	refused map[string]int
}

func newHistory() *history {
	return &history{unknown: map[string]map[int]bool{}, refused: map[string]int{}}
}

func (h *history) registered(r registration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.registrations = append(h.registrations, r)
}

func (h *history) lost(hook string, version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unknown[hook] == nil {
		h.unknown[hook] = map[int]bool{}
	}
	h.unknown[hook][version] = true
}

func (h *history) judged(j judgement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judgements = append(h.judgements, j)
}

func (h *history) notJudged(answer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused[answer]++
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.judgements)
}

// check returns the judgements that escaped a registration which had been
// acknowledged longer than the bound when they began; own is the bound for those through the
// server that acknowledged it. It also returns the longest time between an acknowledgement and the beginning of a write that was
// not judged by it.
func (h *history) check(bound, own time.Duration) (escapes []string, longest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range h.judgements {
		for _, r := range h.registrations {
			age := j.began.Sub(r.acknowledged)
			if age < 0 {
				continue
			}
			what := ""
			if j.revision < r.revision {
				what = fmt.Sprintf("by revision %d, and not %d", j.revision, r.revision)
			} else if seen := j.versions[r.hook]; seen < r.version && !h.unknown[r.hook][seen] {
				what = fmt.Sprintf("by version %d, and not %d, at revision %d, and not %d", seen, r.version, j.revision, r.revision)
			} else {
				continue
			}
			longest = max(longest, age)
			limit := bound
			if j.server == r.server {
				limit = own
			}
			if age > limit {
				escapes = append(escapes, fmt.Sprintf("server %d, %s after the acknowledgement of %s: judged %s: %s", j.server, age, r.hook, what, j.answer))
			}
		}
	}
	return escapes, longest
}
