package harness

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// StartTimeout is how long a server may take until it is ready, on a busy
	// machine.
	StartTimeout = 3 * time.Minute
	// StopTimeout is how long it may take to end after SIGTERM.
	StopTimeout = 30 * time.Second
)

// process is a server, or an etcd, that runs as a process of its own.
type process struct {
	cmd *exec.Cmd
	log *log
	// done is closed when the process has ended; err is then how.
	done chan struct{}
	err  error

	mu struct {
		sync.Mutex
		// stray is what came on standard output after the ready line.
		stray []string
	}
}

// startProcess runs the command until it prints a line that matches ready, and
// returns the match.
func startProcess(ready *regexp.Regexp, name string, args ...string) (p *process, match []string, err error) {
	return startProcessAs(tied(), 0, ready, name, args...)
}

// startProcessAs is startProcess with attributes of the process, and with a clock that is ahead.
func startProcessAs(attr *syscall.SysProcAttr, clock time.Duration, ready *regexp.Regexp, name string, args ...string) (p *process, match []string, err error) {
	p = &process{cmd: exec.Command(name, args...), log: &log{}, done: make(chan struct{})}
	p.cmd.SysProcAttr = attr
	p.cmd.Stderr = p.log
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p.cmd.Stdout = in
	if err := startWithClock(p.cmd, clock); err != nil {
		return nil, nil, err
	}
	in.Close()
	living.add(p)
	go func() {
		p.err = p.cmd.Wait()
		living.remove(p)
		close(p.done)
	}()
	matches := make(chan []string, 1)
	go p.readOutput(out, ready, matches)
	timer := time.NewTimer(StartTimeout)
	defer timer.Stop()
	select {
	case match := <-matches:
		return p, match, nil
	case <-p.done:
		return nil, nil, fmt.Errorf("server ended before it was ready: %w\n%s", p.err, p.log.excerpt())
	case <-timer.C:
		_ = p.Kill()
		return nil, nil, fmt.Errorf("server was not ready within %s\n%s", StartTimeout, p.log.excerpt())
	}
}

func (p *process) readOutput(out io.ReadCloser, ready *regexp.Regexp, matches chan<- []string) {
	defer out.Close()
	found := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if match := ready.FindStringSubmatch(lines.Text()); match != nil && !found {
			found = true
			matches <- match
			continue
		}
		p.mu.Lock()
		p.mu.stray = append(p.mu.stray, lines.Text())
		p.mu.Unlock()
	}
}

// stop asks the process to end and returns what was wrong with how it did.
func (p *process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(StopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		// The goroutines' stacks say what it waits for.
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
		return fmt.Errorf("server did not end within %s of SIGTERM\n%s", StopTimeout, p.log)
	}
	if p.err != nil {
		return fmt.Errorf("server ended with %w\n%s", p.err, p.log.excerpt())
	}
	return p.verify()
}

func (p *process) Kill() error {
	_ = p.cmd.Process.Kill()
	<-p.done
	return p.verify()
}

// verify returns what the server has written that it must not write.
func (p *process) verify() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.stray) > 0 {
		return fmt.Errorf("more than one line on standard output: %q", p.mu.stray)
	}
	return p.log.verify()
}

// log keeps what a server logs. It is safe for concurrent use.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// alarms are what no server may ever log; the last one is how a fatal error of
// klog begins.
var alarms = regexp.MustCompile(`panic: |panic\(|panicked: true|Observed a panic|SHOULD NOT HAPPEN|DATA RACE|fatal error|^F\d{4} `)

func (l *log) verify() error {
	lines, i := l.find()
	if i < 0 {
		return nil
	}
	return fmt.Errorf("the server logged:\n%s", strings.Join(lines[i:min(i+excerptLines, len(lines))], "\n"))
}

// excerptLines bounds what of a log is shown.
const excerptLines = 60

// excerpt returns the lines from the first alarm on, or else the last ones.
func (l *log) excerpt() string {
	lines, i := l.find()
	if i < 0 {
		i = max(len(lines)-excerptLines, 0)
	}
	return strings.Join(lines[i:min(i+excerptLines, len(lines))], "\n")
}

// find returns the lines of the log and the position of the first alarm, -1 if
// there is none.
func (l *log) find() ([]string, int) {
	lines := strings.Split(l.String(), "\n")
	return lines, slices.IndexFunc(lines, alarms.MatchString)
}

// living are the processes that have been started and have not ended.
var living = &processes{}

type processes struct {
	mu  sync.Mutex
	all map[*process]bool
}

func (l *processes) add(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*process]bool{}
	}
	l.all[p] = true
}

func (l *processes) remove(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, p)
}

func (l *processes) list() []*process {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*process
	for p := range l.all {
		list = append(list, p)
	}
	return list
}
