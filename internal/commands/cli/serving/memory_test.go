package serving

import (
	"testing"
	"time"
)

func TestTheRuntimesLimitFollowsWhatIsAlive(t *testing.T) {
	for live, want := range map[uint64]int64{0: 64 << 20, 50 << 20: 164 << 20, 1 << 30: 2<<30 + 64<<20} {
		if got := (memory{live: live}).limit(64 << 20); got != want {
			t.Errorf("with %d alive: %d, want %d", live, got, want)
		}
	}
}

// Memory is returned when a server becomes quiet, once more when its caches are dropped, and never while it is
// busy.
func TestAServerThatBecomesQuietGivesMemoryBack(t *testing.T) {
	var q quiet
	at, now := time.Now(), memory{live: 50 << 20, held: 200 << 20}
	for _, step := range []struct {
		name      string
		after     time.Duration
		allocated uint64
		held      uint64
		want      bool
	}{
		{"the beginning", 0, 0, 200 << 20, false},
		{"busy", quietTime, quietBytes, 200 << 20, false},
		{"busy still", quietTime, quietBytes, 200 << 20, false},
		{"quiet for too short a time", quietTime / 2, 1 << 20, 200 << 20, false},
		{"quiet", quietTime / 2, 1 << 20, 200 << 20, true},
		{"quiet still", quietTime, 1 << 20, 100 << 20, false},
		{"the caches are dropped", afterCaches - 2*quietTime, 1 << 20, 60 << 20, true},
		{"quiet for long", afterCaches, 1 << 20, 200 << 20, false},
		{"busy again", quietTime, quietBytes, 200 << 20, false},
		{"quiet with nothing to give back", quietTime, 1 << 20, 60 << 20, false},
		{"grown little by little", quietTime, 1 << 20, 200 << 20, true},
	} {
		at = at.Add(step.after)
		now.allocated += step.allocated
		now.held = step.held
		if got := q.begins(at, now); got != step.want {
			t.Errorf("%s: %t", step.name, got)
		}
	}
}

// The runtime's own names.
func TestTheRuntimeTellsOfItsMemory(t *testing.T) {
	if m := readMemory(); m.allocated == 0 || m.held < m.live || m.held == 0 {
		t.Errorf("got %+v", m)
	}
}
