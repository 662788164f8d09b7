//go:build !linux

package harness

import "syscall"

// tied is empty where the kernel cannot tie a child to its parent: a test
// process that is killed leaves its servers behind.
func tied() *syscall.SysProcAttr { return nil }
