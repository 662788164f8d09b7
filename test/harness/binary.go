package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Binary returns the path of the gatehouse binary.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// BinaryPath is Binary where there is no test at hand.
func BinaryPath() (string, error) { return binary() }

var binary = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("GATEHOUSE_BINARY"); given != "" {
		return filepath.Abs(given)
	}
	return build("gatehouse", "./cmd/gatehouse")
})

// build builds a command of the module. The result stays in the user's cache,
// where it costs nothing to build it again; other test processes may replace it
// meanwhile, so this one gets a link of its own.
func build(name, pkg string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "gatehouse-test")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	dir, err := workDir()
	if err != nil {
		return "", err
	}
	// A test that needs the program again takes the same file. The file may run, here and,
	// by another name, in other test processes: it must not be written.
	own := filepath.Join(dir, name)
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	built := filepath.Join(cache, name)
	// Without Go plugins, which only kustomize has, linking takes a fraction of the time.
	cmd := exec.Command("go", "build", "-tags=kustomize_disable_go_plugin_support", "-o", built, pkg)
	cmd.Dir = moduleRoot()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	if err := os.Link(built, own); err == nil {
		return own, nil
	}
	data, err := os.ReadFile(built)
	if err != nil {
		return "", err
	}
	return own, os.WriteFile(own, data, 0o755)
}

// moduleRoot is the directory of go.mod. Tests that were built with -trimpath do not know
// where their files are; Go knows the module of the directory they run in.
func moduleRoot() string {
	if _, file, _, _ := runtime.Caller(0); filepath.IsAbs(file) {
		return filepath.Join(filepath.Dir(file), "..", "..")
	}
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "."
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// workDir is a directory for files that outlive a single test. Main removes it.
var workDir = sync.OnceValues(func() (string, error) {
	return os.MkdirTemp("", "gatehouse-test-")
})
