//go:build !linux

package harness

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// tied is empty because the kernel cannot tie a child to its parent: a killed test process leaves its servers
// behind.
func tied() *syscall.SysProcAttr { return nil }

// Clock returns false: a test cannot shift the clock of a server here.
func (s *Server) Clock(testing.TB, time.Duration) bool { return false }

func startWithClock(cmd *exec.Cmd, ahead time.Duration) error {
	if ahead != 0 {
		return errors.ErrUnsupported
	}
	return cmd.Start()
}
