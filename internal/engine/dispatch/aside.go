package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// patience is the duration of a pass after which its request steps aside. A call that takes longer
// counts as slow.
const patience = 100 * time.Millisecond

// stepAside calls Options.StepAside when the pass has taken longer than patience, because it then
// waits for webhooks, or at once if the last call of one of its webhooks was slow. The returned
// function calls the function that Options.StepAside returned, if any.
func (r *run) stepAside(ctx context.Context) (end func()) {
	if r.options.StepAside == nil {
		return func() {}
	}
	if r.slow.has(r.steps) {
		return r.options.StepAside(ctx)
	}
	var mu sync.Mutex
	var over bool
	var back func()
	timer := time.AfterFunc(patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			r.slow.expect(r.steps)
			back = r.options.StepAside(ctx)
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		over = true
		if back != nil {
			back()
		}
	}
}

// maxSlow bounds the number of remembered webhooks; beyond it, all are forgotten.
const maxSlow = 1024

// slowHooks are the webhooks whose last or current call is slow. It is safe for concurrent use, and
// costs one atomic read while it is empty.
type slowHooks struct {
	n  atomic.Int64
	mu struct {
		sync.RWMutex
		hooks map[identity]struct{}
	}
}

func (s *slowHooks) has(steps []plan.Candidate) bool {
	if s.n.Load() == 0 {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := range steps {
		if _, ok := s.mu.hooks[identityOf(&steps[i].Entry.Origin)]; ok {
			return true
		}
	}
	return false
}

// expect marks all webhooks of a slow pass as slow, until note determines the slow ones.
func (s *slowHooks) expect(steps []plan.Candidate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range steps {
		s.set(identityOf(&steps[i].Entry.Origin), true)
	}
}

// set marks or unmarks one webhook. The caller holds the lock.
func (s *slowHooks) set(id identity, slow bool) {
	if s.mu.hooks == nil || len(s.mu.hooks) >= maxSlow {
		s.mu.hooks = map[identity]struct{}{}
	}
	if slow {
		s.mu.hooks[id] = struct{}{}
	} else {
		delete(s.mu.hooks, id)
	}
	s.n.Store(int64(len(s.mu.hooks)))
}

// note records the durations of the calls of a pass.
func (s *slowHooks) note(calls []trace.Call) {
	for i := range calls {
		c := &calls[i]
		slow := c.Latency >= patience
		if !slow && s.n.Load() == 0 || c.ClientGone && !slow {
			continue
		}
		s.mu.Lock()
		s.set(identityOf(&c.Entry), slow)
		s.mu.Unlock()
	}
}
