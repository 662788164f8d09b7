package harness

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Pause stops the server with SIGSTOP: the kernel accepts its connections, and the server does nothing until
// Resume.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
}

// Resume lets a paused server continue.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGCONT)
}

func (s *Server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.runner.(*process).cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// PID returns the process ID of the server.
func (s *Server) PID() int { return s.runner.(*process).cmd.Process.Pid }

// AwaitEnd waits until the server ends without a signal, and returns its exit code and its log.
func (s *Server) AwaitEnd(t testing.TB) (code int, log string) {
	t.Helper()
	p := s.runner.(*process)
	select {
	case <-p.done:
	case <-time.After(Patience):
		t.Fatalf("the server did not end by itself within %s\n%s", Patience, p.log.excerpt())
	}
	s.runner = nil
	if err := p.verify(); err != nil {
		t.Error(err)
	}
	return p.cmd.ProcessState.ExitCode(), p.log.String()
}

// Interrupt runs the gatehouse command and sends it SIGTERM after a delay. It returns the time that the
// command then took to end, and an error if it did not end in order.
func Interrupt(t testing.TB, after time.Duration, args ...string) (took time.Duration, err error) {
	t.Helper()
	cmd := exec.Command(Binary(t), args...)
	cmd.SysProcAttr = tied()
	log := &log{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	time.Sleep(after)
	begun := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
	case <-time.After(StopTimeout):
		// The stacks of the goroutines show the cause of the hang.
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		err = <-done
	}
	took = time.Since(begun)
	// Before main starts, SIGTERM ends the process directly.
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM {
		return took, nil
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, log)
	}
	return took, err
}
