package temporary

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	// standing is the message of a guard that is ready, and release the message to a guard that has nothing to remove.
	standing = "ready"
	release  = "release"
	// guardReady bounds the start of a guard.
	guardReady = time.Minute
	// GuardSettled is how long after the end of its owner a registration may still be created, and guardTries how long
	// the guard tries to remove it.
	GuardSettled = 10 * time.Second
	guardTries   = 10 * time.Minute
)

// Post starts the guard: this program with other arguments, which calls Stand, and removes a registration if this
// process ends without removing it. The guard has a session of its own, so that a signal of the terminal that ends
// this process does not end the guard. released dismisses the guard.
func Post(args ...string) (released func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the process that removes the registration: %w", err)
	}
	ready := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && strings.TrimSpace(line) != standing {
			err = fmt.Errorf("it says %q", line)
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-time.After(guardReady):
		err = errors.New("it does not get ready")
	}
	if err != nil {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("starting the process that removes the registration: %w", err)
	}
	return func() {
		_, _ = io.WriteString(in, release+"\n")
		in.Close()
		_ = cmd.Wait()
	}, nil
}

// AwaitOwner waits until the process that has started this guard ends, and then calls remove, unless the guard was
// released. It reports whether it called remove.
func AwaitOwner(out io.Writer, remove func(context.Context) error) (removed bool, err error) {
	// Signals that end the owner must not end the guard.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	if _, err := fmt.Fprintln(out, standing); err != nil {
		return false, err
	}
	said, _ := io.ReadAll(io.LimitReader(os.Stdin, 1<<10))
	if strings.TrimSpace(string(said)) == release {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), guardTries)
	defer cancel()
	return true, remove(ctx)
}
