package fresh

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHedged(t *testing.T) {
	refused := errors.New("refused")
	const limit = 2 * time.Second
	hangs := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, tt := range []struct {
		name  string
		limit time.Duration
		// read performs an attempt that began this long after the first attempt.
		read     func(ctx context.Context, began time.Duration) error
		attempts int
		took     time.Duration
		err      error
	}{
		{"an answer", limit, func(context.Context, time.Duration) error { return nil }, 1, 0, nil},
		{"an error", limit, func(context.Context, time.Duration) error { return refused }, 1, 0, refused},
		{"S11.10 one member hangs", limit, func(ctx context.Context, began time.Duration) error {
			if began == 0 {
				return hangs(ctx)
			}
			return nil
		}, 2, 300 * time.Millisecond, nil},
		{"S11.10 what was asked before the return of the storage is lost", limit, func(ctx context.Context, began time.Duration) error {
			if began < time.Second {
				return hangs(ctx)
			}
			return nil
		}, 5, 1200 * time.Millisecond, nil},
		{"an error, while another attempt is under way", limit, func(ctx context.Context, began time.Duration) error {
			if began == 0 {
				time.Sleep(400 * time.Millisecond)
				return refused
			}
			time.Sleep(200 * time.Millisecond)
			return nil
		}, 2, 500 * time.Millisecond, nil},
		{"S11.10 everything hangs", limit, func(ctx context.Context, _ time.Duration) error { return hangs(ctx) }, 7, limit, context.DeadlineExceeded},
		{"everything hangs, and a read may take long", time.Minute, func(ctx context.Context, _ time.Duration) error { return hangs(ctx) }, 8, time.Minute, context.DeadlineExceeded},
		{"one fails, others hang", limit, func(ctx context.Context, began time.Duration) error {
			if began == hedgeAfter {
				return refused
			}
			return hangs(ctx)
		}, 7, limit, refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				start := time.Now()
				var attempts atomic.Int32
				got, err := hedged(ctx, func(ctx context.Context) (string, error) {
					attempts.Add(1)
					return "read", tt.read(ctx, time.Since(start))
				})
				if took := time.Since(start); took != tt.took || !errors.Is(err, tt.err) || err == nil && got != "read" {
					t.Errorf("%q, %v after %s; want %v after %s", got, err, took, tt.err, tt.took)
				}
				if n := int(attempts.Load()); n != tt.attempts {
					t.Errorf("%d attempts, want %d", n, tt.attempts)
				}
			})
		})
	}
}
