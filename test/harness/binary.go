package harness

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Binary returns the path of the gatehouse binary. With -short, it skips the test.
func Binary(t testing.TB) string {
	t.Helper()
	speed.Server(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// BinaryPath is Binary for callers without a test, such as TestMain.
func BinaryPath() (string, error) { return binary() }

var binary = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("GATEHOUSE_BINARY"); given != "" {
		return filepath.Abs(given)
	}
	if race {
		return build("gatehouse-race", "./cmd/gatehouse", "-race")
	}
	return build("gatehouse", "./cmd/gatehouse")
})

var agentBinary = sync.OnceValues(func() (string, error) { return build("gatehouse-agent", "./cmd/gatehouse-agent") })

// build builds a command of the module. Each checkout has its own program.
func build(name, pkg string, flags ...string) (string, error) {
	checkout := sha256.Sum256([]byte(moduleRoot()))
	return cached(name, fmt.Sprintf("%s-%x", name, checkout[:6]), func(built string) error { return refresh(built, pkg, flags) })
}

// cached returns a program from the user's cache, where the next test process finds it. Other test processes
// may replace it meanwhile, so the caller gets its own hard link. refresh builds the program, or leaves an
// up-to-date one unchanged; a lock keeps other processes from building the same name.
func cached(name, kept string, refresh func(built string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "gatehouse-test")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock-"+name), os.O_CREATE|os.O_RDWR, 0o644)
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
	// A test that needs the program again gets the same file. Do not overwrite it: this process may be
	// running it, and other test processes run it under other names.
	own := filepath.Join(dir, name)
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	built := filepath.Join(cache, kept)
	if err := refresh(built); err != nil {
		return "", err
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

// refresh builds the command unless the file is up to date. A second file records the sources of the build: a
// fingerprint, then the folders.
func refresh(built, pkg string, flags []string) error {
	note := built + ".sources"
	if data, err := os.ReadFile(note); err == nil {
		lines := strings.Split(string(data), "\n")
		if _, err := os.Stat(built); err == nil && fingerprint(lines[1:]) == lines[0] {
			return nil
		}
	}
	// Only kustomize uses Go plugins. Without them, and without debugger symbols, linking takes half the
	// time.
	flags = append([]string{"-tags=kustomize_disable_go_plugin_support"}, flags...)
	list := append(append([]string{"list", "-deps"}, flags...), "-f", `{{if not .Standard}}{{if .Module.Main}}{{.Dir}}{{range .EmbedFiles}}
{{$.Dir}}/{{.}}{{end}}{{end}}{{end}}`, pkg)
	out, err := run("go", list...)
	if err != nil {
		return err
	}
	sources := []string{filepath.Join(moduleRoot(), "go.mod"), filepath.Join(moduleRoot(), "go.sum")}
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" {
			sources = append(sources, line)
		}
	}
	forget(filepath.Dir(built))
	before := fingerprint(sources)
	if err := os.RemoveAll(note); err != nil {
		return err
	}
	if _, err := run("go", append(append([]string{"build"}, flags...), "-ldflags=-s -w", "-o", built, pkg)...); err != nil {
		return err
	}
	return os.WriteFile(note, []byte(strings.Join(append([]string{before}, sources...), "\n")), 0o644)
}

// forget removes programs older than a week; most belong to deleted checkouts. The caller holds the lock of
// the cache.
func forget(cache string) {
	entries, _ := os.ReadDir(cache)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !strings.HasPrefix(e.Name(), "lock") && time.Since(info.ModTime()) > 7*24*time.Hour {
			_ = os.Remove(filepath.Join(cache, e.Name()))
		}
	}
}

// fingerprint returns a hash of the times and sizes of the given files and of all files in the given folders.
// Go records the files that a test looks at, and does not reuse a cached test result after a change.
func fingerprint(sources []string) string {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), os.Getenv("GOFLAGS"))
	for _, source := range sources {
		info, err := os.Stat(source)
		if err != nil {
			fmt.Fprintln(sum, source, err)
			continue
		}
		files := []os.FileInfo{info}
		if info.IsDir() {
			entries, _ := os.ReadDir(source)
			for _, e := range entries {
				if info, err := e.Info(); err == nil {
					files = append(files, info)
				}
			}
		}
		for _, f := range files {
			if f.Mode().IsRegular() {
				fmt.Fprintln(sum, source, f.Name(), f.Size(), f.ModTime().UnixNano())
			}
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// run runs a command in the root of the module and returns its standard output.
func run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = moduleRoot()
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w\n%s", cmd, err, exit.Stderr)
	}
	return string(out), err
}

// moduleRoot returns the directory of go.mod. Tests built with -trimpath do not know the paths of their
// source files; Go knows the module of the working directory.
var moduleRoot = sync.OnceValue(func() string {
	if _, file, _, _ := runtime.Caller(0); filepath.IsAbs(file) {
		return filepath.Join(filepath.Dir(file), "..", "..")
	}
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "."
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
})

// workDir returns a directory for files that outlive a single test. Main removes it.
var workDir = sync.OnceValues(func() (string, error) {
	return os.MkdirTemp("", "gatehouse-test-")
})
