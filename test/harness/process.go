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
	// StartTimeout is the time limit for a server to become ready on a busy machine.
	StartTimeout = 3 * time.Minute
	// StopTimeout is the time limit for a server to end after SIGTERM.
	StopTimeout = 2 * time.Minute
)

// process is a server or an etcd in a separate process.
type process struct {
	cmd *exec.Cmd
	log *log
	// done is closed when the process has ended; err is then its exit error.
	done chan struct{}
	err  error

	mu struct {
		sync.Mutex
		// stray contains the standard output after the ready line.
		stray []string
	}
}

// startProcess runs the command until it prints a line that matches ready, and returns the match.
func startProcess(ready *regexp.Regexp, name string, args ...string) (p *process, match []string, err error) {
	return startProcessAs(tied(), 0, ready, name, args...)
}

// startProcessAs is startProcess with process attributes and a shifted clock.
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

// Stop ends the process with SIGTERM and returns an error if it does not end in order.
func (p *process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(StopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		// The stacks of the goroutines show the cause of the hang.
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

// verify returns an error for unexpected output or log lines.
func (p *process) verify() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.stray) > 0 {
		return fmt.Errorf("more than one line on standard output: %q", p.mu.stray)
	}
	return p.log.verify()
}

// log keeps the log of a server. It is safe for concurrent use.
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

// alarms match lines that a server must never log; the last alternative matches a fatal error of klog.
var alarms = regexp.MustCompile(`panic: |panic\(|panicked: true|Observed a panic|SHOULD NOT HAPPEN|DATA RACE|fatal error|^F\d{4} `)

// invalid matches the line about an object with a value of the wrong type, which k8s.io/apiserver logs before validation
// rejects the object.
var invalid = regexp.MustCompile(`SHOULD NOT HAPPEN\] failed to update managedFields .*failed to convert new object .* expected \w+, got `)

func (l *log) verify() error {
	lines, i := l.find()
	if i < 0 {
		return nil
	}
	return fmt.Errorf("the server logged:\n%s", strings.Join(lines[i:min(i+excerptLines, len(lines))], "\n"))
}

// excerptLines is the maximal number of log lines in a failure message.
const excerptLines = 60

// excerpt returns the lines from the first alarm on, or the last lines if there is no alarm.
func (l *log) excerpt() string {
	lines, i := l.find()
	if i < 0 {
		i = max(len(lines)-excerptLines, 0)
	}
	return strings.Join(lines[i:min(i+excerptLines, len(lines))], "\n")
}

// find returns the lines of the log and the index of the first alarm, or -1.
func (l *log) find() ([]string, int) {
	lines := strings.Split(l.String(), "\n")
	return lines, slices.IndexFunc(lines, func(line string) bool { return alarms.MatchString(line) && !invalid.MatchString(line) })
}

// living contains the started processes that have not ended.
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
