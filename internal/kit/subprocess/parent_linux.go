package subprocess

import "syscall"

// endWithParent makes the kernel kill a process when its parent ends.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
