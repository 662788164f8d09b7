package harness

import (
	"context"
	"testing"
	"time"
)

// Patience is how long tests wait for something that should happen soon, on a
// busy machine.
const Patience = 30 * time.Second

// Context returns a context that ends with the test, or after Patience at the
// latest.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// contextFor returns a context in which so many commands run, each of which may start a server.
func contextFor(t testing.TB, commands int) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(commands)*(StartTimeout+Patience))
	t.Cleanup(cancel)
	return ctx
}

// Eventually polls until the condition holds and fails the test, saying what was
// waited for and the last error, when it does not within Patience.
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
