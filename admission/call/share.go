package call

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// The memory for answers, and for the objects that their patches produce, is held until the request
// ends. Its total is bounded for each Caller (S4.22).
const (
	// smallAnswer is the maximum size of an answer that is not counted. Nearly all answers are
	// smaller.
	smallAnswer = 64 << 10
	// usualAnswer is the assumed size of an answer of unknown length.
	usualAnswer = 1 << 20
	// perByte is the memory reserved for a byte of an answer before the answer is read: for the
	// buffer, the decoded answer, and the patch in it.
	perByte = 6
	// maxFirst bounds the memory for the first large answers of all requests. A request waits for
	// that memory. maxLater bounds the further memory of requests that already have some: such a
	// request does not wait, because others may be waiting for its memory.
	maxFirst, maxLater = 192 << 20, 64 << 20
	// maxOfTarget bounds the memory for the answers of one webhook server, so that a slow server
	// leaves memory for the others. A single answer of the maximum size fits.
	maxOfTarget = perByte * defaultMaxResponseBytes
	// freeOfRequest is the memory for the patches of a request that is not counted.
	freeOfRequest = 1 << 20
)

// memory is the memory of a Caller for answers.
type memory struct{ first, later *semaphore.Weighted }

func newMemory() memory {
	return memory{semaphore.NewWeighted(maxFirst), semaphore.NewWeighted(maxLater)}
}

// NoRoomError is the error if no memory for answers is left.
type NoRoomError struct{ needed int64 }

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("it needs about %d KiB of memory more, and other webhook responses use all of it", e.needed>>10)
}

// Share is the memory of a Caller that is reserved for the answers to one API request and their
// patches. The zero value has no memory yet. It is safe for concurrent use.
type Share struct {
	mu struct {
		sync.Mutex
		from *memory
		// entered reports whether the request has waited, or is waiting, for its first large
		// answer.
		entered bool
		// taken is the memory in use, and held the memory reserved from the Caller for it.
		taken, held int64
		holds       []*hold
	}
}

// hold is reserved memory.
type hold struct {
	to    *semaphore.Weighted
	bytes int64
}

// bind sets the Caller's memory.
func (s *Share) bind(from *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.from = from
}

// enter reserves memory for a large answer of a webhook server. For the first large answer of the
// request it waits until ctx ends. The caller trims the reservation.
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

// entry is the memory reserved for one response. It counts against the limit of its webhook server
// and against the total.
type entry struct {
	share       *Share
	target, all *hold
}

// trim reduces the reservation to a number of bytes.
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

// Take reserves memory for the result of a patch, or returns a *NoRoomError.
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

// Release releases all memory.
func (s *Share) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.mu.holds {
		h.to.Release(h.bytes)
	}
	s.mu.holds, s.mu.held, s.mu.taken = nil, 0, 0
}

// ReleaseAfter releases all memory when ctx ends, or at once if ctx never ends.
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
