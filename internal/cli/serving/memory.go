package serving

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// liveTimes bounds what the runtime takes: so many times what is alive on the heap,
	// and so many bytes more. A server for tests runs with many others and gets few; with
	// the others' many, a server under load creates an eighth more objects in a second, and
	// with half of its own, its start takes half as much CPU again.
	liveTimes         = 2
	roomInTests, room = 64 << 20, 192 << 20
	// containerShare is how much of a container's memory the runtime may take; the rest
	// is for pages of the program's file and of the database.
	containerShare = .9
	// memoryInterval is how often the bound follows what is alive.
	memoryInterval = 200 * time.Millisecond
	// A server is quiet when it allocates less than quietBytes in quietTime. It then
	// gives back the memory beyond its live heap, if that is more than worthwhile bytes. A
	// server that stays quiet does so a second time after afterCaches, when what was kept for
	// requests that might have followed is dropped; the runtime alone would collect that
	// garbage after minutes.
	quietTime              = 4 * time.Second
	afterCaches            = 12 * time.Second
	quietBytes, worthwhile = 32 << 20, 32 << 20
)

// memory is what the runtime says of its memory, in bytes.
type memory struct {
	// live is what was alive on the heap when garbage was last collected.
	live uint64
	// allocated is what was ever allocated there.
	allocated uint64
	// held is what the runtime has from the operating system.
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

// limit is how much the runtime may have from the operating system, in bytes.
func (m memory) limit(room int64) int64 { return liveTimes*int64(m.live) + room }

// keepMemory keeps what the process takes of the machine's memory near what it needs,
// until ctx ends: the limit of the runtime follows what is alive on the heap, with room
// bytes for garbage, and a server that has become quiet gives back the rest. The limit
// never exceeds the one that was set before, by GOMEMLIMIT, or that of the container.
func keepMemory(ctx context.Context, room int64) {
	most := debug.SetMemoryLimit(-1)
	if container := containerMemory(); container > 0 {
		most = min(most, int64(float64(container)*containerShare))
	}
	defer debug.SetMemoryLimit(most)
	var limit int64
	var calm quiet
	wait.UntilWithContext(ctx, func(context.Context) {
		now := readMemory()
		next := min(now.limit(room), most)
		// Setting it stops the world for a moment, which small changes are not worth.
		if math.Abs(float64(next-limit)) > float64(limit)/32 {
			limit = next
			debug.SetMemoryLimit(limit)
		}
		if calm.begins(time.Now(), now) {
			debug.FreeOSMemory()
		}
	}, memoryInterval)
}

// quiet says when a server that was busy has become quiet.
type quiet struct {
	// since is when what was allocated was last seen to grow by quietBytes, and from
	// how much there was then.
	since time.Time
	from  uint64
	// given is how many times memory was given back since then.
	given int
}

// begins is true twice for every time that the server becomes quiet with memory that is
// worth giving back: at once, and when its caches are dropped.
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
		// It may yet grow, little by little.
		q.since, q.from = now, m.allocated
		return false
	}
	q.given++
	return true
}
