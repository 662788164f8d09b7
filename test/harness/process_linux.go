package harness

import "syscall"

// tied makes a child process die with the test process, however that ends.
func tied() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
