package call

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Answers and what their patches make of objects take memory until the request ends. All of it
// together is bounded for a Caller (S4.22).
const (
	// smallAnswer is the size of an answer that is not counted. Nearly all answers are smaller.
	smallAnswer = 64 << 10
	// usualAnswer is the size up to which an answer is assumed to be that does not say how long
	// it is.
	usualAnswer = 1 << 20
	// perByte is how much memory is taken for a byte of an answer before the answer is read:
	// for the buffer, the decoded answer, and the patch in it.
	perByte = 6
	// maxFirst bounds what the first large answers of requests take together. A request waits
	// for that memory. maxLater is for what a request that has some already needs in addition:
	// such a request does not wait, because others may wait for what it has.
	maxFirst, maxLater = 192 << 20, 64 << 20
	// maxOfTarget bounds what the answers of one webhook server take, so that one that answers
	// slowly leaves memory for the others. A single answer of the largest size fits.
	maxOfTarget = perByte * defaultMaxResponseBytes
	// freeOfRequest is what the patches of a request may take without being counted.
	freeOfRequest = 1 << 20
)

// memory is what a Caller has for answers.
type memory struct{ first, later *semaphore.Weighted }

func newMemory() memory {
	return memory{semaphore.NewWeighted(maxFirst), semaphore.NewWeighted(maxLater)}
}

// NoRoomError means that the memory for answers is taken.
type NoRoomError struct{ needed int64 }

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("it needs about %d KiB of memory more, and other answers of webhooks have taken what there is", e.needed>>10)
}

// Share is what the answers to one API request take of the memory of a Caller, and the patches in
// them. The zero value has nothing yet. It is safe for concurrent use.
type Share struct {
	mu struct {
		sync.Mutex
		from *memory
		// entered reports whether the request has waited, or waits, for its first large answer.
		entered bool
		// taken is what is in use, and held what was taken from the Caller for that.
		taken, held int64
		holds       []*hold
	}
}

// hold is memory to give back.
type hold struct {
	to    *semaphore.Weighted
	bytes int64
}

// bind says which Caller the memory is of.
func (s *Share) bind(from *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.from = from
}

// enter takes memory for a large answer of a webhook server, and waits for it until ctx ends if the
// answer is the first large one of the request. The caller trims what it got.
func (s *Share) enter(ctx context.Context, ofTarget *semaphore.Weighted, bytes int64) (*entry, error) {
	s.mu.Lock()
	from, waits := s.mu.from, !s.mu.entered
	s.mu.entered = true
	s.mu.Unlock()
	acquire := func(of ...*semaphore.Weighted) *hold {
		for _, to := range of {
			if waits && to.Acquire(ctx, bytes) == nil || !waits && to.TryAcquire(bytes) {
				return &hold{to, bytes}
			}
		}
		return nil
	}
	e := &entry{share: s}
	if e.target = acquire(ofTarget); e.target == nil {
		return nil, &NoRoomError{bytes}
	}
	if waits {
		e.all = acquire(from.first)
	} else {
		e.all = acquire(from.later, from.first)
	}
	if e.all == nil {
		ofTarget.Release(bytes)
		return nil, &NoRoomError{bytes}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.holds = append(s.mu.holds, e.target, e.all)
	s.mu.taken += bytes
	s.mu.held += bytes
	return e, nil
}

// entry is what one answer takes, of what its webhook server may take and of what there is.
type entry struct {
	share       *Share
	target, all *hold
}

// trim gives back all but so many bytes.
func (e *entry) trim(to int64) {
	e.share.mu.Lock()
	defer e.share.mu.Unlock()
	over := e.all.bytes - to
	if over <= 0 {
		return
	}
	for _, h := range []*hold{e.target, e.all} {
		h.to.Release(over)
		h.bytes -= over
	}
	e.share.mu.taken -= over
	e.share.mu.held -= over
}

// Take takes so many bytes for what a patch makes, or returns a *NoRoomError.
func (s *Share) Take(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := s.mu.taken + bytes - s.mu.held - freeOfRequest
	if missing > 0 && s.mu.from != nil {
		h := &hold{s.mu.from.later, missing}
		if !h.to.TryAcquire(missing) {
			if h.to = s.mu.from.first; !h.to.TryAcquire(missing) {
				return &NoRoomError{missing}
			}
		}
		s.mu.holds = append(s.mu.holds, h)
		s.mu.held += missing
	}
	s.mu.taken += bytes
	return nil
}

// Release gives everything back.
func (s *Share) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.mu.holds {
		h.to.Release(h.bytes)
	}
	s.mu.holds, s.mu.held, s.mu.taken = nil, 0, 0
}

// ReleaseAfter gives everything back when ctx ends, or at once if ctx never ends.
func (s *Share) ReleaseAfter(ctx context.Context) {
	s.mu.Lock()
	nothing := len(s.mu.holds) == 0
	s.mu.Unlock()
	switch {
	case nothing:
	case ctx.Done() == nil:
		s.Release()
	default:
		context.AfterFunc(ctx, s.Release)
	}
}
