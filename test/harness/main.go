package harness

import (
	"flag"
	"fmt"
	"os"
	"runtime"
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
