package customresources

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestGate(t *testing.T) {
	g := newGate()
	var inside, entered atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for g.enter() {
				inside.Add(1)
				entered.Add(1)
				inside.Add(-1)
				g.leave()
			}
		})
	}
	for entered.Load() < 1000 {
		runtime.Gosched()
	}
	g.close()
	<-g.empty
	if n := inside.Load(); n != 0 {
		t.Errorf("empty with %d inside", n)
	}
	group.Wait()
	g.close()
	if g.enter() || !g.closed() {
		t.Error("a closed gate let somebody in")
	}
}

func TestGateWaitsForTheLast(t *testing.T) {
	g := newGate()
	g.enter()
	g.enter()
	g.close()
	g.leave()
	select {
	case <-g.empty:
		t.Error("empty with one inside")
	default:
	}
	g.leave()
	<-g.empty
}
