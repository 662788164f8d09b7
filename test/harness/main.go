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

// Main runs the tests and returns the exit code for os.Exit. Parallel tests mostly wait, so by default more
// of them run at once than there are cores; -parallel overrides the number. Main stops the shared server, and
// fails if the server logged a panic or if a test left a process behind.
func Main(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", fmt.Sprint(3*runtime.GOMAXPROCS(0)))
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

// Lasting returns a test whose cleanups and temporary directories last until the end of Main, for servers that
// several tests use.
func Lasting(t testing.TB) testing.TB { return lasting{t} }

type lasting struct{ testing.TB }

func (lasting) Cleanup(end func()) {
	ends.Lock()
	defer ends.Unlock()
	ends.list = append(ends.list, end)
}

func (l lasting) TempDir() string {
	l.Helper()
	dir, err := os.MkdirTemp("", "lasting-")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Failed reports false: the test that failed has printed its log.
func (lasting) Failed() bool { return false }

// Report adds a server of a Lasting test to the servers whose logs t prints if it fails.
func (s *Server) Report(t testing.TB) { reportFailure(t, s) }
