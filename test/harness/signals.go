package harness

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Pause stops the server as SIGSTOP does: the kernel takes connections for it, and it
// does nothing. Resume ends that.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
}

// Resume makes the server go on.
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

// PID is the process of the server.
func (s *Server) PID() int { return s.runner.(*process).cmd.Process.Pid }

// AwaitEnd waits until the server has ended by itself, and returns its exit code and
// what it logged.
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

// Interrupt runs the gatehouse command and sends it SIGTERM after a while. It returns
// how long the command then took to end; the error is that it did not end in order.
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
		// The goroutines' stacks say what it waits for.
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		err = <-done
	}
	took = time.Since(begun)
	// Before main begins, the signal itself ends the process.
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM {
		return took, nil
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, log)
	}
	return took, err
}
