package dev

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is a program that runs, with all that it starts.
type process struct {
	cmd *exec.Cmd
	// gone is closed when the program has ended, with err.
	gone chan struct{}
	err  error
}

// startProcess starts a program in a process group of its own. What it prints goes to output.
func startProcess(g *guard, args, env []string, dir string, output io.Writer) (*process, error) {
	p := &process{cmd: exec.Command(args[0], args[1:]...), gone: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = env, dir, output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(p.cmd.SysProcAttr)
	// What the program leaves behind may hold its output open.
	p.cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		// Linux takes the end of the thread that started a process for the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if err == nil {
			g.set(p.cmd.Process.Pid, true)
		}
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.gone)
		}
	}()
	return p, <-started
}

// stop ends the program and all that it started: by SIGTERM, and by SIGKILL after some time.
func (p *process) stop(g *guard, grace time.Duration) {
	if p == nil {
		return
	}
	group := -p.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.gone:
	case <-timer.C:
	}
	// The rest of the group, too.
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-p.gone
	g.set(-group, false)
}

// errEnded is why a program does not listen that has ended.
var errEnded = errors.New("the program ended before it listened")

// errInterrupted is why nobody waits for a program any more.
var errInterrupted = errors.New("the user wants something else")

// listens returns when the program accepts connections and speaks: by TLS, or in a way that says
// that it does not. interrupted reports whether the user wants something else.
func (p *process) listens(ctx context.Context, address string, interrupted func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := shake(ctx, address, nil); err == nil || !errors.As(err, new(*net.OpError)) {
			if conn != nil {
				conn.Close()
			}
			if ctx.Err() == nil {
				return nil
			}
		}
		select {
		case <-p.gone:
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if interrupted() {
				return errInterrupted
			}
		}
	}
}

// shakePatience bounds one connection to a program.
const shakePatience = 2 * time.Second

// shake connects to a program and makes a TLS handshake. config may be nil: the certificate is not looked
// at then.
func shake(ctx context.Context, address string, config *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, shakePatience)
	defer cancel()
	if config == nil {
		config = &tls.Config{InsecureSkipVerify: true}
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// tail keeps the last of what a program prints.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// mostKept bounds a tail, in bytes.
const mostKept = 8 << 10

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, data...)
	if over := len(t.text) - mostKept; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(data), nil
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
