package customresources

import (
	"math"
	"sync/atomic"
)

// gate counts the callers inside. A closed gate admits no caller. It is safe for concurrent use and
// takes no lock.
type gate struct {
	// state is the number inside; shut is added to it when the gate closes.
	state atomic.Int64
	// empty is closed when the gate is closed and the last caller has left.
	empty chan struct{}
}

const shut = math.MinInt64

func newGate() *gate { return &gate{empty: make(chan struct{})} }

// enter reports whether the caller is inside. If so, the caller must call leave.
func (g *gate) enter() bool {
	for {
		n := g.state.Load()
		if n < 0 {
			return false
		}
		if g.state.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (g *gate) leave() {
	if g.state.Add(-1) == shut {
		close(g.empty)
	}
}

// close closes the gate, which may be closed already. empty is closed when the gate is also
// empty.
func (g *gate) close() {
	for {
		n := g.state.Load()
		if n < 0 {
			return
		}
		if g.state.CompareAndSwap(n, n+shut) {
			if n == 0 {
				close(g.empty)
			}
			return
		}
	}
}

func (g *gate) closed() bool { return g.state.Load() < 0 }
