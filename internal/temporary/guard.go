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
	// standing is what a guard says when it is ready, and release what it is sent when there is nothing to
	// remove.
	standing = "ready"
	release  = "release"
	// guardReady is how long a guard may take to start.
	guardReady = time.Minute
	// GuardSettled is how long a registration may come into being after its owner has ended, and
	// guardTries how long the guard tries to remove it.
	GuardSettled = 10 * time.Second
	guardTries   = 10 * time.Minute
)

// Post starts the guard: this program with other arguments, which Stands and removes a registration when this process
// ends without having done so. The guard has a session of its own, so that what ends this process by its terminal does
// not end the guard. The function releases it.
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

// Stand waits until the process that has posted this one ends, and then removes what it has left, unless it was
// released. It reports whether it was not.
func Stand(out io.Writer, remove func(context.Context) error) (removed bool, err error) {
	// It outlives what ends its owner.
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
