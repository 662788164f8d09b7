package replicas

import (
	"fmt"
	"sync"
	"time"
)

// registration is a write of a registration or of a param of a policy. The versions of each subject increase.
type registration struct {
	hook    string
	version int
	// server is the server that received the write.
	server int
	// revision is the resourceVersion in the acknowledgement; 0 for a param, since the revision of a
	// judgement does not cover params.
	revision     int64
	acknowledged time.Time
}

// judgement is a write that was evaluated by admission.
type judgement struct {
	server int
	began  time.Time
	// revision is the revision in the response's header.
	revision int64
	// versions are the versions of the subjects that evaluated the write.
	versions map[string]int
	// created is the name of the created object; empty if the write was rejected. answer is the response.
	created, answer string
}

// history is the record of all writes. It is safe for concurrent use.
type history struct {
	mu            sync.Mutex
	registrations []registration
	judgements    []judgement
	// unknown contains the versions of unacknowledged writes: they may take effect late, after acknowledged
	// writes.
	unknown map[string]map[int]bool
	// refused counts the writes that were not evaluated, by response.
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

// check returns the judgements that escaped a registration acknowledged more than the bound before they
// began; own is the bound for writes through the server that acknowledged the registration. It also returns
// the longest time between an acknowledgement and the start of a write that was not evaluated against it.
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
