package harness

import (
	"fmt"
	"os"
	"testing"
)

// Main runs the tests and returns the exit code for os.Exit. It stops the
// shared server, and fails when that logged a panic or when a test left a
// process behind.
func Main(m *testing.M) int {
	code := m.Run()
	fail := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
		code = max(code, 1)
	}
	if sharedStarted {
		if s, err := shared(); err == nil {
			if err := s.runner.stop(); err != nil {
				fail("shared server: %v", err)
			}
		}
	}
	for _, p := range living.list() {
		fail("a test left a process behind: %s", p.cmd)
		_ = p.kill()
	}
	if dir, err := workDir(); err == nil {
		os.RemoveAll(dir)
	}
	return code
}
