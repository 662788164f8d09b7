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

// BinaryPath is Binary where there is no test at hand.
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

// build builds a command of the module. Each checkout has a program of its own.
func build(name, pkg string, flags ...string) (string, error) {
	checkout := sha256.Sum256([]byte(moduleRoot()))
	return cached(name, fmt.Sprintf("%s-%x", name, checkout[:6]), func(built string) error { return refresh(built, pkg, flags) })
}

// cached returns a program that stays in the user's cache, where the next test process finds it.
// Other test processes may replace it meanwhile, so this one gets a link of its own. refresh builds
// the program, or leaves it as it is; nobody else builds one of that name meanwhile.
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
	// A test that needs the program again takes the same file. The file may run, here and,
	// by another name, in other test processes: it must not be written.
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

// refresh builds the command unless the file is up to date. What the file was built from
// stands in a second file: a fingerprint, then the folders.
func refresh(built, pkg string, flags []string) error {
	note := built + ".sources"
	if data, err := os.ReadFile(note); err == nil {
		lines := strings.Split(string(data), "\n")
		if _, err := os.Stat(built); err == nil && fingerprint(lines[1:]) == lines[0] {
			return nil
		}
	}
	// Without Go plugins, which only kustomize has, and without symbols for a debugger,
	// linking takes half of the time.
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

// forget removes the programs that were built a week ago, most of them of checkouts that are gone. The
// lock of the cache is held.
func forget(cache string) {
	entries, _ := os.ReadDir(cache)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !strings.HasPrefix(e.Name(), "lock") && time.Since(info.ModTime()) > 7*24*time.Hour {
			_ = os.Remove(filepath.Join(cache, e.Name()))
		}
	}
}

// fingerprint is that of the files, and of all files in the folders, by time and size. Go
// records what a test looks at, and does not reuse the result of the test after a change.
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

// moduleRoot is the directory of go.mod. Tests that were built with -trimpath do not know
// where their files are; Go knows the module of the directory they run in.
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

// workDir is a directory for files that outlive a single test. Main removes it.
var workDir = sync.OnceValues(func() (string, error) {
	return os.MkdirTemp("", "gatehouse-test-")
})
