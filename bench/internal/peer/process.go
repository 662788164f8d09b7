package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is the time in which a process must end after SIGTERM.
const patience = 20 * time.Second

// clockTick is the unit of CPU times in /proc: USER_HZ, 100 on every Linux platform that Go supports.
const clockTick = 10 * time.Millisecond

// Process is a running program.
type Process struct {
	cmd     *exec.Cmd
	log     string
	started time.Time
	exited  chan struct{}
	err     error
}

// launch starts a program. Standard error is appended to a file in dir that is named after the program, and so is
// standard output unless out is given.
func launch(dir, path string, out io.Writer, args ...string) (*Process, error) {
	p := &Process{log: filepath.Join(dir, filepath.Base(path)+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, log
	if out == nil {
		p.cmd.Stdout = log
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// launchAndRead starts a program and returns the first line of its output.
func launchAndRead(ctx context.Context, dir, path string, args ...string) (*Process, string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	p, err := launch(dir, path, w, args...)
	w.Close()
	if err != nil {
		r.Close()
		return nil, "", err
	}
	lines := make(chan string, 1)
	go func() {
		defer r.Close()
		output := bufio.NewReader(r)
		line, _ := output.ReadString('\n')
		lines <- strings.TrimSpace(line)
		// A closed pipe ends a program that prints more.
		_, _ = io.Copy(io.Discard, output)
	}()
	select {
	case line := <-lines:
		if line == "" {
			<-p.exited
			return nil, "", p.failure()
		}
		return p, line, nil
	case <-ctx.Done():
		return nil, "", errors.Join(fmt.Errorf("%s printed nothing: %w", filepath.Base(path), context.Cause(ctx)), p.Stop())
	}
}

// failure returns the error of a process that ended unexpectedly, with the end of its log.
func (p *Process) failure() error {
	data, _ := os.ReadFile(p.log)
	//nolint:errorlint // The error is nil when the process ended in order.
	return fmt.Errorf("%s ended: %v\n%s", filepath.Base(p.cmd.Path), p.err, data[max(0, len(data)-2000):])
}

// Stop ends the process with SIGTERM, and with SIGKILL after a timeout.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(patience):
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	return fmt.Errorf("%s did not end within %s of SIGTERM", filepath.Base(p.cmd.Path), patience)
}

// Kill ends the process immediately.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// RSS returns the resident memory of the process, in bytes.
func (p *Process) RSS() (int64, error) { return p.memory("VmRSS:") }

// Anonymous returns the part of the resident memory without pages of files, in bytes.
func (p *Process) Anonymous() (int64, error) { return p.memory("RssAnon:") }

// ForgetPeak resets Peak to the current resident memory.
func (p *Process) ForgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0)
}

// Peak returns the peak of the resident memory, in bytes.
func (p *Process) Peak() (int64, error) { return p.memory("VmHWM:") }

// WriteProfiles makes a program built from cmd/profiled write its profiles.
func (p *Process) WriteProfiles() error { return p.cmd.Process.Signal(syscall.SIGUSR1) }

// ProfileCPU makes a program built from cmd/profiled start a CPU profile, or end it.
func (p *Process) ProfileCPU() error { return p.cmd.Process.Signal(syscall.SIGUSR2) }

func (p *Process) memory(field string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc", field)
}

// CPU returns the CPU time that the process has used, in steps of 10 ms.
func (p *Process) CPU() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name of the command is in parentheses and may contain any characters; field 3 follows. User and system time
	// are fields 14 and 15.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat is short")
	}
	var sum time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ticks) * clockTick
	}
	return sum, nil
}
