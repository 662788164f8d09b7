package expression

import (
	"math"
	"sync/atomic"
)

// Most is the maximum of many costs. It is safe for concurrent use. Its zero value is 0.
type Most struct{ highest atomic.Uint64 }

// Note adds a cost, without an allocation. It ignores an unknown cost, math.MaxUint64.
func (m *Most) Note(cost uint64) {
	if cost == math.MaxUint64 {
		return
	}
	for {
		before := m.highest.Load()
		if cost <= before || m.highest.CompareAndSwap(before, cost) {
			return
		}
	}
}

// Load returns the highest cost.
func (m *Most) Load() uint64 { return m.highest.Load() }
