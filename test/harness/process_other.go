//go:build !linux

package harness

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// tied is empty where the kernel cannot tie a child to its parent: a test
// process that is killed leaves its servers behind.
func tied() *syscall.SysProcAttr { return nil }

// Clock reports that a test cannot give a server another clock.
func (s *Server) Clock(testing.TB, time.Duration) bool { return false }

func startWithClock(cmd *exec.Cmd, ahead time.Duration) error {
	if ahead != 0 {
		return errors.ErrUnsupported
	}
	return cmd.Start()
}
