package serving

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// endWithParentVariable is the environment variable that keeps a test server running after its parent process
// ends.
const endWithParentVariable = "GATEHOUSE_END_WITH_PARENT"

// endWithLockVariable is the environment variable with a file that the users of a test server lock. The server
// ends after a while without users, rather than with its parent.
const endWithLockVariable = "GATEHOUSE_END_WITH_LOCK"

const (
	// parentInterval is the interval between checks for the parent or for users.
	parentInterval = 250 * time.Millisecond
	// unusedTime is the wait for another user before a server ends: the next package of a 'go test' is linked
	// meanwhile.
	unusedTime = 5 * time.Second
)

// startedBy is the process ID of the parent. It is read before the parent can end.
var startedBy = os.Getppid()

// orphaned waits until the parent process has ended, for any reason. The environment can disable this, or name
// a lock to check instead. It returns false if ctx ended first, or if there is no parent to check: the first
// process of a machine or of a container does not end.
//
// The log, which goes to standard error, has the reason: a script may have started the server and ended on
// purpose, and no other process can see how it ended.
//
// Polling works on every system. Linux could send a signal, but does so already when a thread of the parent
// ends.
func orphaned(ctx context.Context) bool {
	ended := func() bool {
		if os.Getppid() == startedBy {
			return false
		}
		klog.Warningf("Process %d, which started this server for tests, has ended: the server ends, too. %s=false in its environment keeps it running.", startedBy, endWithParentVariable)
		return true
	}
	if path := os.Getenv(endWithLockVariable); path != "" {
		ended = unused(path)
	} else if end, err := strconv.ParseBool(os.Getenv(endWithParentVariable)); err == nil && !end || startedBy == 1 {
		return false
	}
	// The parent's end breaks the pipe of the log. The signal must not end this process before it has cleaned
	// up.
	signal.Ignore(syscall.SIGPIPE)
	return wait.PollUntilContextCancel(ctx, parentInterval, true, func(context.Context) (bool, error) { return ended(), nil }) == nil
}

// unused returns a function that reports whether no process has locked the file for a while. When it reports
// true, it has deleted the file and keeps it locked until this process ends, so that a user that waits for the
// lock sees that the server is gone. A file that cannot be opened has no users.
func unused(path string) func() bool {
	f, err := os.Open(path)
	if err != nil {
		return func() bool { return true }
	}
	last := time.Now()
	return func() bool {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			last = time.Now()
			return false
		}
		if time.Since(last) < unusedTime {
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
			return false
		}
		_ = os.Remove(path)
		return true
	}
}

// whileParentLives returns a context that ends with ctx or with the parent process.
func whileParentLives(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		if orphaned(ctx) {
			cancel()
		}
	}()
	return ctx, cancel
}
