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

// endWithParentVariable names the environment variable that lets a server of tests live
// on when the process that started it has ended.
const endWithParentVariable = "GATEHOUSE_END_WITH_PARENT"

// endWithLockVariable names the environment variable with a file that the users of a server
// of tests lock. The server ends when it has had none for a while, and not with its parent.
const endWithLockVariable = "GATEHOUSE_END_WITH_LOCK"

const (
	// parentInterval is how often a server of tests looks whether its parent lives, or
	// whether it has a user.
	parentInterval = 250 * time.Millisecond
	// unusedTime is how long a server waits for another user: the next package of a
	// 'go test' is linked meanwhile.
	unusedTime = 5 * time.Second
)

// startedBy is the process that started this one. It is read before anything takes time.
var startedBy = os.Getppid()

// orphaned waits until the process that started this one has ended, however that happened, unless
// the environment says that it does not matter or names a lock to look at instead. It returns false
// when ctx ended before, or when there is nobody to look for: the first process of a machine or of a
// container does not end.
//
// The log, which goes to standard error, names the reason: a script may have started the server and ended on
// purpose, and no other process can see how it ended.
//
// Looking is what every system can do. Linux could send a signal, but does so already
// when a thread of the parent ends.
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
	// After the parent has ended, log lines go nowhere, and must not end this process
	// before it has cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	return wait.PollUntilContextCancel(ctx, parentInterval, true, func(context.Context) (bool, error) { return ended(), nil }) == nil
}

// unused returns a function that reports whether no process has locked the file for a while. When
// it does, the file is gone, and stays locked until this process ends: a user that waits for
// the lock then sees that it is too late. A file that cannot be opened has no users.
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

// whileParentLives returns a context that ends with ctx or with the process that started
// this one.
func whileParentLives(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		if orphaned(ctx) {
			cancel()
		}
	}()
	return ctx, cancel
}
