package gatehousetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// startTimeout limits the start of a server on a busy machine, and stopTimeout its end.
const startTimeout, stopTimeout = 2 * time.Minute, 30 * time.Second

var readyLine = regexp.MustCompile(`^gatehouse is ready at (https://\S+), kubeconfig (.+)$`)

// process is a server.
type process struct {
	cmd        *exec.Cmd
	binary     string
	kubeconfig string
	admin      *rest.Config
	log        safeBuffer
	// done is closed when the server has ended. It is nil for a server that another process
	// started.
	done chan struct{}
	// users is the locked file of a server that packages share.
	users *os.File
}

// shared is the server of the tests that did not ask for their own.
var shared = sync.OnceValues(func() (*process, error) { return startProcess(nil) })

// server returns the server for a test.
func (o *options) server(t testing.TB) (*process, error) {
	if o.own && o.shared {
		return nil, errors.New("a server of the test's own cannot be shared: Own and ServiceAddress exclude Shared")
	}
	if !o.own {
		start := shared
		if o.shared {
			start = ofTheRun
		}
		s, err := start()
		if err != nil {
			return nil, err
		}
		select {
		case <-s.done:
			return nil, fmt.Errorf("the shared server has ended\n%s", s.log.String())
		default:
			return s, nil
		}
	}
	s, err := startProcess(o.flags)
	if err == nil {
		t.Cleanup(func() {
			if err := s.stop(); err != nil {
				t.Errorf("gatehousetest: %v", err)
			}
		})
	}
	return s, err
}

// startProcess starts a server. The server ends with this process, because it checks that its parent is alive,
// unless the environment disables that.
func startProcess(flags []string, environment ...string) (*process, error) {
	binary, err := binary()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(binary, append([]string{"serve", "--test"}, flags...)...), binary: binary, done: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Environ(), environment...)
	// The server gets pipes of its own: if it inherited one, it could keep 'go test' waiting.
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	ready := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
				ready <- m[2]
			}
		}
		_ = p.cmd.Wait()
		close(p.done)
	}()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case p.kubeconfig = <-ready:
	case <-p.done:
		return nil, fmt.Errorf("the server ended before it was ready (%s)\n%s%s", p.cmd.ProcessState, p.log.String(), versionOf(binary))
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
		return nil, fmt.Errorf("the server was not ready within %s\n%s", startTimeout, p.log.String())
	}
	if err := p.readKubeconfig(); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// versionOf describes the version of a program that did not start: it may be older than this package and lack a
// flag.
func versionOf(binary string) string {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return fmt.Sprintf("%s has no command version: is it gatehouse?", binary)
	}
	return fmt.Sprintf("the program is %s:\n%sIt must be as new as the module gatehousetest, or newer.", binary, out)
}

func (p *process) readKubeconfig() (err error) {
	if p.admin, err = clientcmd.BuildConfigFromFlags("", p.kubeconfig); err != nil {
		return err
	}
	p.admin.QPS = -1
	p.admin.WarningHandler = rest.NoWarnings{}
	return nil
}

// stop ends a server.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("the server did not end within %s\n%s", stopTimeout, p.log.String())
	}
	if state := p.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("the server ended with %s\n%s", state, p.log.String())
	}
	return nil
}

// safeBuffer is a buffer for concurrent use.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
