package subprocess

import (
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Process is a running program, with its descendants.
type Process struct {
	// Gone is closed after the program has ended, with Err. State describes the end.
	Gone  chan struct{}
	Err   error
	cmd   *exec.Cmd
	group func(id int, runs bool)
	// mark is an entry in the environment of all descendants of the program.
	mark string
}

// Mark begins the entry in the environment of every program of this process, and of their descendants: a process may
// leave the group of its program, but keeps its environment.
var Mark = "GATEHOUSE_PROGRAM_OF_" + rand.Text() + "="

var programs atomic.Int64

// Start starts a program in a process group of its own, in a directory; empty means the directory of this process. The
// program writes to output and errors, which may be the same. group, if set, is called with the group when it begins to
// run, and when it has ended.
func Start(args, env []string, dir string, output, errors io.Writer, group func(id int, runs bool)) (*Process, error) {
	if group == nil {
		group = func(int, bool) {}
	}
	p := &Process{cmd: exec.Command(args[0], args[1:]...), Gone: make(chan struct{}), group: group, mark: Mark + strconv.FormatInt(programs.Add(1), 10)}
	if env == nil {
		env = os.Environ()
	}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = append(slices.Clip(env), p.mark), dir, output, errors
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(p.cmd.SysProcAttr)
	// Descendants of the program may hold its output open.
	p.cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		// Linux treats the end of the thread that started a process as the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if err == nil {
			group(p.cmd.Process.Pid, true)
		}
		started <- err
		if err == nil {
			p.Err = p.cmd.Wait()
			close(p.Gone)
		}
	}()
	return p, <-started
}

// State describes how a program ended. It must be called after Gone is closed.
func (p *Process) State() string { return p.cmd.ProcessState.String() }

// Group returns the process group of the program and its descendants.
func (p *Process) Group() int { return p.cmd.Process.Pid }

// Stop ends the program and its descendants, on Linux also descendants that left its process group: by SIGTERM, and by
// SIGKILL after the time grace. Stop of a nil Process does nothing.
func (p *Process) Stop(grace time.Duration) {
	if p == nil {
		return
	}
	group := -p.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	for _, id := range strays(p.mark) {
		_ = syscall.Kill(id, syscall.SIGTERM)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.Gone:
	case <-timer.C:
	}
	// The rest of the group, too.
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-p.Gone
	// A process may start another one during the search.
	for ids := strays(p.mark); len(ids) > 0; ids = strays(p.mark) {
		for _, id := range ids {
			_ = syscall.Kill(id, syscall.SIGKILL)
		}
	}
	p.group(-group, false)
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
