package customresources

import (
	"sync"
	"sync/atomic"
	"time"
)

// late is something that is built when it is first needed, dropped when it was not needed for
// a while, and then built again. It is safe for concurrent use: those who need it at the same
// time wait for one build. The value stays valid for a request that has it.
type late[T any] struct {
	build  func() (T, error)
	keeper *keeper
	// current is nil while nothing is built.
	current atomic.Pointer[built[T]]
	// building is held while it is built.
	building sync.Mutex
	// patience is for how many rounds of the keeper it is kept unused, and unused for how many
	// it has not been needed. The keeper's lock guards both.
	patience, unused int
}

// built is what a build returned.
type built[T any] struct {
	value T
	err   error
	used  atomic.Bool
}

// newLate returns what build builds. It is kept for so many rounds of the keeper at first.
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

// round implements kept. What is built again and again is kept longer each time.
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
	// roundTime is how long a round of the keeper takes.
	roundTime = 5 * time.Second
	// minPatience is for how many rounds something is kept that is needed once, maxPatience for
	// how many what is needed again and again.
	minPatience, maxPatience = 1, 60
	// requestPatience is for what one request needs several times, and always the same, some
	// microseconds apart; conversionPatience is for that if calls of a conversion webhook may be
	// in between.
	requestPatience, conversionPatience = 2, 24
)

// keeper drops what is not needed any more. It does nothing while there is nothing to keep.
type keeper struct {
	interval time.Duration

	mu   sync.Mutex
	kept []kept
	// next is the timer of the next round; nil while there is nothing to keep.
	next *time.Timer
	// over says that the keeper has ended.
	over bool
}

// kept is what a keeper keeps.
type kept interface {
	// round reports whether it is still to be kept; if not, it has been dropped. The keeper's
	// lock is held.
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

// round drops what was not needed since the round before.
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

// end ends the rounds. What is built stays.
func (k *keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	if k.next != nil {
		k.next.Stop()
	}
}
