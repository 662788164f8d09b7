package harness

import "syscall"

// tied makes the kernel kill a child process when the test process ends for any reason.
func tied() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
