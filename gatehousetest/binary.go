package gatehousetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

const (
	// binaryVariable names the program when it is set.
	binaryVariable = "GATEHOUSE_BINARY"
	command        = "github.com/gatehouse-dev/gatehouse/cmd/gatehouse"
	// withoutPlugins leaves Go plugins out of the kustomize in kubectl, which cannot be
	// switched on there anyway. A program that may load plugins keeps all that they could
	// call, and only the C linker can link it: that takes a multiple of time and space.
	withoutPlugins = "kustomize_disable_go_plugin_support"
)

// binary returns the path of the server's program.
var binary = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(binaryVariable); given != "" {
		if _, err := os.Stat(given); err != nil {
			return "", fmt.Errorf("$%s: %w", binaryVariable, err)
		}
		return filepath.Abs(given)
	}
	built, buildErr := build()
	if buildErr == nil {
		return built, nil
	}
	found, pathErr := exec.LookPath("gatehouse")
	if pathErr == nil {
		return filepath.Abs(found)
	}
	return "", fmt.Errorf("there is no program for the server. Set $%s to one, or put gatehouse on the PATH, or add it to the module of the test with: go get -tool %s\n%w",
		binaryVariable, command, errors.Join(buildErr, pathErr))
})

// build builds the program in the module of the test, whose directory a test runs in. The
// result stays in the user's cache. A module whose dependencies do not change finds it
// there; go build tells.
func build() (string, error) {
	module, err := run("go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(module))
	dir := filepath.Join(cache, "gatehouse", "test", fmt.Sprintf("%x", key[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Test binaries run at the same time.
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "gatehouse")
	if _, err := run("go", "build", "-tags="+withoutPlugins, "-ldflags=-s -w", "-o", path, command); err != nil {
		return "", err
	}
	return path, nil
}

func run(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		text := ""
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			text = ": " + strings.TrimSpace(string(exit.Stderr))
		}
		return "", fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(string(out)), nil
}
