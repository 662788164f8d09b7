package cli

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// endWithParentVariable names the environment variable that lets a server of tests live
// on when the process that started it has ended.
const endWithParentVariable = "GATEHOUSE_END_WITH_PARENT"

// parentInterval is how often a server of tests looks whether its parent lives.
const parentInterval = 250 * time.Millisecond

// startedBy is the process that started this one. It is read before anything takes time.
var startedBy = os.Getppid()

// orphaned returns a channel that is closed when the process that started this one has
// ended, however that happened, unless the environment says that it does not matter. It
// looks until ctx ends. The channel is nil when there is nobody to look for: the first
// process of a machine or of a container does not end.
//
// Looking is what every system can do. Linux could send a signal, but does so already
// when a thread of the parent ends.
func orphaned(ctx context.Context) <-chan struct{} {
	if end, err := strconv.ParseBool(os.Getenv(endWithParentVariable)); err == nil && !end || startedBy == 1 {
		return nil
	}
	// After the parent has ended, log lines go nowhere, and must not end this process
	// before it has cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	gone := make(chan struct{})
	go func() {
		tick := time.NewTicker(parentInterval)
		defer tick.Stop()
		for os.Getppid() == startedBy {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		close(gone)
	}()
	return gone
}

// whileParentLives returns a context that ends with ctx or with the process that started
// this one.
func whileParentLives(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if gone := orphaned(ctx); gone != nil {
		go func() {
			select {
			case <-gone:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}
