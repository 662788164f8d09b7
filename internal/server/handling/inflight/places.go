package inflight

import (
	"container/list"
	"context"
	"sync"
)

// places bounds how many requests of one kind are handled at once. It is safe for concurrent use.
type places struct {
	limit int
	// maxAside bounds the requests that stepped aside.
	maxAside int

	mu struct {
		sync.Mutex
		taken, aside int
		// line has a channel for each waiting request, which is closed with a place for the
		// request; it is empty while there are places.
		line list.List
	}
}

// try takes a place if one is free.
func (p *places) try() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.taken >= p.limit {
		return false
	}
	p.mu.taken++
	return true
}

// wait takes a place, waiting for a free one behind earlier callers. It returns false if the
// context ended first.
func (p *places) wait(ctx context.Context) bool {
	p.mu.Lock()
	if p.mu.taken < p.limit {
		p.mu.taken++
		p.mu.Unlock()
		return true
	}
	granted := make(chan struct{})
	mine := p.mu.line.PushBack(granted)
	p.mu.Unlock()
	select {
	case <-granted:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-granted:
		return true
	default:
		p.mu.line.Remove(mine)
		return false
	}
}

// takeAnyway takes a place even if none is free.
func (p *places) takeAnyway() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.taken++
}

// give gives back a place.
func (p *places) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.taken--
	for p.mu.taken < p.limit && p.mu.line.Len() > 0 {
		p.mu.taken++
		close(p.mu.line.Remove(p.mu.line.Front()).(chan struct{}))
	}
}

// stepAside counts a request that gives the place back temporarily, unless there are too many;
// comeBack ends that.
func (p *places) stepAside() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.aside >= p.maxAside {
		return false
	}
	p.mu.aside++
	return true
}

func (p *places) comeBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.aside--
}
