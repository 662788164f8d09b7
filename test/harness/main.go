package harness

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Main runs the tests and returns the exit code for os.Exit. By default, one more parallel test runs than there are
// cores, because some wait; -parallel overrides the number. Main stops the shared server, and
// fails if the server logged a panic or if a test left a process behind.
func Main(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", fmt.Sprint(1+runtime.GOMAXPROCS(0)))
	}
	code := speed.Main(m)
	fail := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
		code = max(code, 1)
	}
	for _, end := range slices.Backward(ends.list) {
		end()
	}
	if sharedStarted {
		if s, err := shared(); err == nil {
			if err := s.runner.Stop(); err != nil {
				fail("shared server: %v", err)
			}
		}
	}
	for _, p := range living.list() {
		fail("a test left a process behind: %s", p.cmd)
		_ = p.Kill()
	}
	if dir, err := workDir(); err == nil {
		os.RemoveAll(dir)
	}
	return code
}

var ends struct {
	sync.Mutex
	list []func()
}

// Life is a test whose cleanups and temporary directories last until End or the end of Main, for servers that
// several tests use.
type Life struct {
	testing.TB
	mu   sync.Mutex
	list []func()
}

// Lasting returns a Life that begins in a test.
func Lasting(t testing.TB) *Life {
	l := &Life{TB: t}
	ends.Lock()
	defer ends.Unlock()
	ends.list = append(ends.list, l.end)
	return l
}

// Cleanup adds a function that End calls.
func (l *Life) Cleanup(end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, end)
}

// End calls the cleanups, the last one first. Their failures are failures of t.
func (l *Life) End(t testing.TB) {
	l.TB = t
	l.end()
}

func (l *Life) end() {
	l.mu.Lock()
	list := l.list
	l.list = nil
	l.mu.Unlock()
	for _, end := range slices.Backward(list) {
		end()
	}
}

// TempDir returns a directory that exists until End.
func (l *Life) TempDir() string {
	l.Helper()
	dir, err := os.MkdirTemp("", "lasting-")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Failed reports false: the test that failed has printed its log.
func (l *Life) Failed() bool { return false }

// Report adds a server of a Life to the servers whose logs t prints if it fails.
func (s *Server) Report(t testing.TB) { reportFailure(t, s) }
