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

// failures are the servers of each test that runs, for the report of a failure.
var failures = struct {
	mu      sync.Mutex
	servers map[testing.TB][]logged
}{servers: map[testing.TB][]logged{}}

// logged is the log of a server from a line on.
type logged struct {
	server *Server
	from   int
}

// reportFailure has a test that fails print the last lines that its servers logged, and the command that runs it alone.
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
	// The servers that the test starts are stopped before: cleanups run in the opposite order.
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

// failure is the report: the command, and at most excerptLines lines of logs.
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

// alone is the command that runs one test of this package.
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
