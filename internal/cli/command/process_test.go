package command

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A signal that is on its way while a program takes over ends the process, as one before and after.
func TestNoSignalIsLost(t *testing.T) {
	const child = "GATEHOUSE_TEST_SIGNALS"
	if os.Getenv(child) != "" {
		ctx := Signals()
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		LeaveSignals(ctx)
		time.Sleep(time.Minute)
		return
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
