package inflight

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// As many lists as there are CPUs have a turn. The next one waits for the end of a turn, but
// never for long, and a turn ends once.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := func(want int) {
			t.Helper()
			if got, waiting := longLists.count(); got != want || waiting != 0 {
				t.Errorf("%d turns are taken and %d requests wait, want %d and none", got, waiting, want)
			}
		}
		var ends []func()
		for range longLists.limit {
			ctx, end := WithTurns(t.Context())
			TakeTurn(ctx)
			TakeTurn(ctx)
			if HasTurns(ctx) {
				t.Error("a request that has its turn may take one more")
			}
			ends = append(ends, end)
		}
		taken(longLists.limit)

		ctx, end := WithTurns(t.Context())
		begin := time.Now()
		time.AfterFunc(time.Second, ends[0])
		TakeTurn(ctx)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("a turn came after %v, when another one ended after 1s", took)
		}
		ends[0]()
		taken(longLists.limit)

		late, endLate := WithTurns(t.Context())
		begin = time.Now()
		TakeTurn(late)
		if took := time.Since(begin); took != turnPatience {
			t.Errorf("a request waited %v for its turn, want %v", took, turnPatience)
		}
		endLate()
		gone, cancel := context.WithCancel(t.Context())
		gone, _ = WithTurns(gone)
		cancel()
		begin = time.Now()
		TakeTurn(gone)
		if took := time.Since(begin); took != 0 {
			t.Errorf("a request that is over waited %v for its turn", took)
		}
		taken(longLists.limit)

		end()
		for _, end := range ends {
			end()
		}
		TakeTurn(t.Context())
		taken(0)
	})
}
