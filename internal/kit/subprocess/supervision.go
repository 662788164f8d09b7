package subprocess

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

const (
	// end is the signal to a supervisor that kills the program and its descendants at once.
	end = syscall.SIGUSR1
	// A supervisor reports lines of a word and a number: the ID of the program or the errno of its start, and at the end
	// its wait status.
	started, failed, ended = "started", "failed", "ended"
)

// supervision connects a Process with its supervisor.
type supervision struct {
	read, write *os.File
	// program is the path of the program.
	program string
}

// start starts the command, and returns the process group of the program.
func (s *supervision) start(cmd *exec.Cmd) (group int, err error) {
	if s == nil {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	}
	err = cmd.Start()
	s.write.Close()
	if err != nil {
		s.read.Close()
		return 0, err
	}
	word, number, err := s.line()
	if word == failed {
		err = &os.PathError{Op: "fork/exec", Path: s.program, Err: syscall.Errno(number)}
	}
	if err != nil {
		s.read.Close()
		return 0, errors.Join(err, cmd.Wait())
	}
	return number, nil
}

// line reads a report of the supervisor.
func (s *supervision) line() (word string, number int, err error) {
	_, err = fmt.Fscanln(s.read, &word, &number)
	return word, number, err
}

// wait waits for the command. It returns the state of the program and its error.
func (s *supervision) wait(cmd *exec.Cmd) (state string, err error) {
	err = cmd.Wait()
	if s == nil {
		return cmd.ProcessState.String(), err
	}
	defer s.read.Close()
	_, number, ending := s.line()
	if ending != nil {
		return cmd.ProcessState.String(), err
	}
	status := syscall.WaitStatus(number)
	if state = "exit status " + strconv.Itoa(status.ExitStatus()); status.Signaled() {
		state = "signal: " + status.Signal().String()
	}
	if number != 0 {
		err = errors.New(state)
	}
	return state, err
}

// stop sends SIGTERM to descendants of the program outside of its process group.
func (s *supervision) stop(cmd *exec.Cmd) {
	if s != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
}

// kill kills the program and its descendants.
func (s *supervision) kill(cmd *exec.Cmd) {
	if s == nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	} else {
		_ = cmd.Process.Signal(end)
	}
}
