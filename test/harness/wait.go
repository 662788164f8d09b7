package harness

import (
	"context"
	"testing"
	"time"
)

// Patience is the time limit for an event that should happen soon, on a machine ten times slower than usual.
const Patience = 2 * time.Minute

// Context returns a context that is cancelled at the end of the test, or after Patience.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// contextFor returns a context with enough time for a number of commands, each of which may start a server.
func contextFor(t testing.TB, commands int) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(commands)*(StartTimeout+Patience))
	t.Cleanup(cancel)
	return ctx
}

// Breathe waits 20 ms, or until ctx ends. A client that writes until the end of a test calls it after each write, to
// leave the processor to others.
func Breathe(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// Eventually polls until condition returns nil, the longer it waits the less often. After Patience it fails the test with the description and the
// last error.
func Eventually(t testing.TB, what string, condition func() error) {
	t.Helper()
	ctx := Context(t)
	begun := time.Now()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-time.After(min(10*time.Millisecond+time.Since(begun)/8, 250*time.Millisecond)):
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, Patience, err)
		}
	}
}
