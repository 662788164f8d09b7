package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// failures lists the servers of each running test, for the report of a failure.
var failures = struct {
	mu      sync.Mutex
	servers map[testing.TB][]logged
}{servers: map[testing.TB][]logged{}}

// logged is the log of a server, starting at a line.
type logged struct {
	server *Server
	from   int
}

// reportFailure makes a failing test print the last log lines of its servers, and the command that runs the
// test alone.
func reportFailure(t testing.TB, s *Server) {
	l := logged{s, strings.Count(s.Log(), "\n")}
	failures.mu.Lock()
	defer failures.mu.Unlock()
	servers, known := failures.servers[t]
	for _, other := range servers {
		if other.server == s {
			return
		}
	}
	failures.servers[t] = append(servers, l)
	if known {
		return
	}
	// Cleanups run in reverse order, so the servers of the test have already stopped.
	t.Cleanup(func() {
		failures.mu.Lock()
		servers := failures.servers[t]
		delete(failures.servers, t)
		failures.mu.Unlock()
		if t.Failed() {
			t.Log(failure(t.Name(), servers))
		}
	})
}

// failure formats the report: the command, and at most excerptLines lines of logs.
func failure(test string, servers []logged) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run this test alone: %s", alone(test))
	for i, l := range servers {
		text := l.server.Log()
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if l.from < len(lines) {
			lines = lines[l.from:]
		}
		most := excerptLines / len(servers)
		left := max(len(lines)-most, 0)
		if text != "" && most > 0 {
			fmt.Fprintf(&b, "\nserver %d of the test, %d lines of its log left out:\n%s", i+1, left, strings.Join(lines[left:], "\n"))
		}
	}
	return b.String()
}

// alone returns the command that runs one test of this package.
func alone(test string) string {
	pkg := "."
	if dir, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(moduleRoot(), dir); err == nil {
			pkg = "./" + filepath.ToSlash(rel)
		}
	}
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return fmt.Sprintf("go test %s -count=1 -run '%s'", pkg, strings.Join(parts, "/"))
}
