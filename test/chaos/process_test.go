package chaos

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

const (
	writers = 8
	mib     = 1 << 20
)

// begin starts the writers. stop stops them and waits for them.
func begin(t *testing.T, l *ledger, s *harness.Server, id string, refused func(code int)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() { l.write(ctx, t, s, fmt.Sprintf("%s-w%d", id, w), refused) })
	}
	return func() {
		cancel()
		writing.Wait()
	}
}

// progress waits until the given number of further writes is acknowledged.
func progress(t *testing.T, l *ledger, more int) {
	t.Helper()
	goal := l.count() + more
	harness.Eventually(t, "writes are acknowledged", func() error {
		if n := l.count(); n < goal {
			return fmt.Errorf("%d of %d", n, goal)
		}
		return nil
	})
}

// noneRefused fails the test for every rejected write, for healthy servers.
func noneRefused(t *testing.T) func(int) {
	return func(code int) { t.Errorf("a write was answered with %d", code) }
}

func TestNoAcknowledgedWriteIsLostByAKill(t *testing.T) {
	t.Parallel()
	s := harness.Start(t)
	l := newLedger()
	rounds(t, speed.Of(1, 10), func(i int) {
		stop := begin(t, l, s, fmt.Sprintf("r%d", i), noneRefused(t))
		progress(t, l, 300)
		s.Kill(t)
		stop()
		s.Restart(t)
		l.check(t, s)
	})
	t.Logf("%d writes were acknowledged, and are there", l.count())
	t.Run("a pause", func(t *testing.T) { goesOnAfterAPause(t, l, s) })
}

// A stopping server finishes the writes that it has begun, with full admission even in strict mode, where
// each write needs a read of etcd (S11.8). It answers later requests with 503.
func TestTheEndOfAServerFinishesWrites(t *testing.T) {
	t.Parallel()
	many := speed.Of(1, 5)
	for _, mode := range speed.Some(t, 1, []string{"bounded", "strict"}) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, "--admission-consistency", mode)
			l := newLedger()
			rounds(t, many, func(i int) {
				stop := begin(t, l, s, fmt.Sprintf("e%d", i), func(code int) {
					if code != http.StatusServiceUnavailable {
						t.Errorf("a write was answered with %d", code)
					}
				})
				progress(t, l, 100)
				s.Stop(t)
				stop()
				s.Restart(t)
				l.check(t, s)
			})
		})
	}
}

// goesOnAfterAPause suspends the process, as on a machine that is migrated. It continues after it resumes.
func goesOnAfterAPause(t *testing.T, l *ledger, s *harness.Server) {
	t.Helper()
	// Writes during the pause may time out with 504.
	stop := begin(t, l, s, "p", nil)
	rounds(t, 1, func(int) {
		progress(t, l, 100)
		s.Pause(t)
		// Longer than etcd's election timeout and the maximum staleness of registrations.
		time.Sleep(6 * time.Second)
		s.Resume(t)
		progress(t, l, 100)
	})
	stop()
	l.check(t, s)
	s.HTTP(t, nil).Must(http.StatusOK, "GET", "/readyz", "")
}

// SIGTERM ends a server at any moment of its start, and shortly after it.
func TestSIGTERMEndsAServerAtAnyMoment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	random := speed.Random(t)
	rounds(t, speed.Of(2, 24), func(int) {
		// From before main to long after the server is ready.
		after := time.Duration(random.IntN(12)) * 60 * time.Millisecond
		took, err := harness.Interrupt(t, after, "serve", "--data-dir", dir, "--secure-port", "0")
		if err != nil || took > 20*time.Second {
			t.Errorf("SIGTERM %s after the start: ended after %s with %v", after, took, err)
		}
	})
}
