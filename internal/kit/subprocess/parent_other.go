//go:build !linux

package subprocess

import "syscall"

// endWithParent does nothing: other systems have no such signal.
func endWithParent(*syscall.SysProcAttr) {}
