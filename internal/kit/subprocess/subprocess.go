package subprocess

import (
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a running program, with its descendants.
type Process struct {
	// Gone is closed after the program has ended, with Err. State describes the end.
	Gone        chan struct{}
	Err         error
	cmd         *exec.Cmd
	supervision *supervision
	state       string
	id          int
	group       func(id int, runs bool)
}

// Start starts a program in a process group of its own, in a directory; empty means the directory of this process. The
// program writes to output and errors, which may be the same. group, if set, is called when the program begins to run,
// and when it has ended, with the ID of a process group: on Linux the supervisor's, elsewhere the program's.
func Start(args, env []string, dir string, output, errors io.Writer, group func(id int, runs bool)) (*Process, error) {
	return Places{}.Start(args, env, dir, output, errors, group)
}

// Start starts a program that finds the places at their paths.
func (p Places) Start(args, env []string, dir string, output, errors io.Writer, group func(id int, runs bool)) (*Process, error) {
	if group == nil {
		group = func(int, bool) {}
	}
	started := &Process{cmd: exec.Command(args[0], args[1:]...), Gone: make(chan struct{}), group: group}
	started.cmd.Env, started.cmd.Dir, started.cmd.Stdout, started.cmd.Stderr = env, dir, output, errors
	started.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Descendants of the program may hold its output open.
	started.cmd.WaitDelay = time.Second
	var err error
	if started.supervision, err = newSupervision(started.cmd, p); err != nil {
		return nil, err
	}
	begun := make(chan error)
	go func() {
		// Linux treats the end of the thread that started a process as the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		if started.id, err = started.supervision.start(started.cmd); err == nil {
			group(started.cmd.Process.Pid, true)
		}
		begun <- err
		if err == nil {
			started.state, started.Err = started.supervision.wait(started.cmd)
			close(started.Gone)
		}
	}()
	return started, <-begun
}

// State describes how a program ended. It must be called after Gone is closed.
func (p *Process) State() string { return p.state }

// Group returns the process group of the program and its descendants.
func (p *Process) Group() int { return p.id }

// Stop ends the program and its descendants, on Linux also descendants that left its process group: by SIGTERM, and by
// SIGKILL after the time grace. Stop of a nil Process does nothing.
func (p *Process) Stop(grace time.Duration) {
	if p == nil {
		return
	}
	_ = syscall.Kill(-p.id, syscall.SIGTERM)
	p.supervision.stop(p.cmd)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.Gone:
	case <-timer.C:
	}
	p.supervision.kill(p.cmd)
	<-p.Gone
	p.group(p.cmd.Process.Pid, false)
}

// Tail keeps the end of a program's output. It is safe for concurrent use.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// mostKept bounds a Tail, in bytes.
const mostKept = 8 << 10

// Write implements io.Writer.
func (t *Tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, data...)
	if over := len(t.text) - mostKept; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(data), nil
}

// Reset discards the output.
func (t *Tail) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = nil
}

// String returns the output, without white space around it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
