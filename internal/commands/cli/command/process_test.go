package command

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A signal that arrives during a takeover ends the process, like a signal before or after it.
func TestNoSignalIsLost(t *testing.T) {
	const child = "GATEHOUSE_TEST_SIGNALS"
	if os.Getenv(child) != "" {
		ctx := Signals()
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if os.Getenv(child) == "ends" {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), context.Canceled) {
				t.Errorf("the context ended by %v", context.Cause(ctx))
			}
			return
		}
		LeaveSignals(ctx)
		time.Sleep(time.Minute)
		return
	}
	ends := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestNoSignalIsLost$")
	ends.Env = append(os.Environ(), child+"=ends")
	if out, err := ends.CombinedOutput(); err != nil {
		t.Errorf("the context does not end as one that is canceled: %v\n%s", err, out)
	}
	for range 20 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestNoSignalIsLost$")
		cmd.Env = append(os.Environ(), child+"=1")
		err := cmd.Run()
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Fatalf("the process ended otherwise: %v", err)
		}
	}
}
