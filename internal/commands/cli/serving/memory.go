package serving

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gatehouse-dev/gatehouse/internal/kit/prelude"
)

const (
	// The memory limit of the runtime is liveTimes times the live heap, plus room bytes. A server for tests
	// shares the machine with many others and gets roomInTests. Under load, a server with the larger room
	// creates an eighth more objects per second than with roomInTests; with half of roomInTests, its start
	// takes half as much CPU again.
	liveTimes         = 2
	roomInTests, room = 64 << 20, 192 << 20
	// containerShare is the runtime's largest share of a container's memory. The rest is for pages of the
	// binary and of the database.
	containerShare = .9
	// memoryInterval is the interval between updates of the limit.
	memoryInterval = 200 * time.Millisecond
	// A server is quiet when it allocates less than quietBytes in quietTime. It then returns the memory beyond
	// its live heap to the operating system, if that is more than worthwhile bytes. If it stays quiet, it does
	// so again after afterCaches, when caches for further requests have expired. The runtime alone would
	// collect that garbage minutes later.
	quietTime              = 4 * time.Second
	afterCaches            = 12 * time.Second
	quietBytes, worthwhile = 32 << 20, 32 << 20
)

// memory has statistics of the Go runtime, in bytes.
type memory struct {
	// live is the live heap at the last garbage collection.
	live uint64
	// allocated is the sum of all heap allocations.
	allocated uint64
	// held is the memory obtained from the operating system.
	held uint64
}

func readMemory() memory {
	s := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(s)
	return memory{live: s[0].Value.Uint64(), allocated: s[1].Value.Uint64(), held: s[2].Value.Uint64() - s[3].Value.Uint64()}
}

// limit returns the memory limit of the runtime, in bytes.
func (m memory) limit(room int64) int64 { return liveTimes*int64(m.live) + room }

// keepMemory keeps the memory of the process near its needs until ctx ends: the limit of the runtime follows
// the live heap, with room bytes for garbage, and a server that becomes quiet returns the rest. The limit never
// exceeds GOMEMLIMIT or the limit of the container.
func keepMemory(ctx context.Context, room int64) {
	most := prelude.TakeMemoryLimit()
	if container := containerMemory(); container > 0 {
		most = min(most, int64(float64(container)*containerShare))
	}
	defer debug.SetMemoryLimit(most)
	var limit int64
	var calm quiet
	wait.UntilWithContext(ctx, func(context.Context) {
		now := readMemory()
		next := min(now.limit(room), most)
		// Setting the limit stops the world, so small changes are skipped.
		if math.Abs(float64(next-limit)) > float64(limit)/32 {
			limit = next
			debug.SetMemoryLimit(limit)
		}
		if calm.begins(time.Now(), now) {
			debug.FreeOSMemory()
		}
	}, memoryInterval)
}

// quiet detects when a busy server becomes quiet.
type quiet struct {
	// since is the last time when allocations had grown by quietBytes, and from is the value of allocated at
	// that time.
	since time.Time
	from  uint64
	// given is the number of times memory was returned since then.
	given int
}

// begins returns true twice whenever the server becomes quiet with enough memory to return: at once, and after
// its caches have expired.
func (q *quiet) begins(now time.Time, m memory) bool {
	if q.since.IsZero() || m.allocated-q.from >= quietBytes {
		*q = quiet{since: now, from: m.allocated}
		return false
	}
	wait := quietTime
	if q.given == 1 {
		wait = afterCaches
	}
	if q.given == 2 || now.Sub(q.since) < wait {
		return false
	}
	if q.given == 0 && m.held < m.live+worthwhile {
		// It may still grow slowly.
		q.since, q.from = now, m.allocated
		return false
	}
	q.given++
	return true
}
