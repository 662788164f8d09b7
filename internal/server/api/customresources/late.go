package customresources

import (
	"sync"
	"sync/atomic"
	"time"
)

// late is a value that is built on first use, dropped when it was not used for a while, and built
// again when it is needed again. It is safe for concurrent use: callers that need the value at the
// same time wait for one build. The value stays valid for a request that has it.
type late[T any] struct {
	build  func() (T, error)
	keeper *keeper
	// current is nil while nothing is built.
	current atomic.Pointer[built[T]]
	// building is held while the value is built.
	building sync.Mutex
	// patience is the number of rounds of the keeper for which the value is kept unused, and unused
	// the number of rounds in which it was not needed. The keeper's lock guards both.
	patience, unused int
}

// built is the result of a build.
type built[T any] struct {
	value T
	err   error
	used  atomic.Bool
}

// newLate returns a late value with the function build. patience is the initial number of rounds of
// the keeper for which the value is kept unused.
func newLate[T any](k *keeper, patience int, build func() (T, error)) *late[T] {
	return &late[T]{build: build, keeper: k, patience: patience}
}

// get returns the value, or the error of the build.
func (l *late[T]) get() (T, error) {
	b := l.current.Load()
	if b == nil {
		b = l.make()
	} else if !b.used.Load() {
		b.used.Store(true)
	}
	return b.value, b.err
}

func (l *late[T]) make() *built[T] {
	l.building.Lock()
	defer l.building.Unlock()
	if b := l.current.Load(); b != nil {
		b.used.Store(true)
		return b
	}
	b := &built[T]{}
	b.value, b.err = l.build()
	b.used.Store(true)
	l.current.Store(b)
	l.keeper.add(l)
	return b
}

// round implements kept. A value that is built repeatedly is kept longer each time.
func (l *late[T]) round() bool {
	b := l.current.Load()
	if b.used.Swap(false) {
		l.unused = 0
		return true
	}
	if l.unused++; l.unused < l.patience {
		return true
	}
	l.unused, l.patience = 0, min(2*l.patience, maxPatience)
	l.current.Store(nil)
	return false
}

const (
	// roundTime is the duration of a round of the keeper.
	roundTime = 5 * time.Second
	// minPatience is how many rounds a value is kept that is needed once, and maxPatience how many
	// rounds a value is kept that is needed repeatedly.
	minPatience, maxPatience = 1, 60
	// requestPatience is for a value that must stay the same for one request, which needs it
	// several times, some microseconds apart. conversionPatience is for such a value if the
	// request may call a conversion webhook in between.
	requestPatience, conversionPatience = 2, 24
)

// keeper drops values that are no longer used. It does nothing while it has no value.
type keeper struct {
	interval time.Duration

	mu   sync.Mutex
	kept []kept
	// next is the timer of the next round; nil while the keeper keeps no value.
	next *time.Timer
	// over is set when the keeper has ended.
	over bool
}

// kept is a value that a keeper keeps.
type kept interface {
	// round reports whether the keeper still has to keep the value; if not, round has dropped
	// it. The keeper's lock is held.
	round() bool
}

func (k *keeper) add(one kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, one)
	if k.next == nil && !k.over {
		k.next = time.AfterFunc(k.interval, k.round)
	}
}

// round calls round of all values, and removes the dropped ones.
func (k *keeper) round() {
	k.mu.Lock()
	defer k.mu.Unlock()
	var still []kept
	for _, one := range k.kept {
		if one.round() {
			still = append(still, one)
		}
	}
	k.kept, k.next = still, nil
	if len(still) > 0 && !k.over {
		k.next = time.AfterFunc(k.interval, k.round)
	}
}

// end ends the rounds. Built values stay.
func (k *keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	if k.next != nil {
		k.next.Stop()
	}
}
