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

// Eventually polls until condition returns nil. After Patience it fails the test with the description and the
// last error.
func Eventually(t testing.TB, what string, condition func() error) {
	t.Helper()
	ctx := Context(t)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, Patience, err)
		}
	}
}
