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
	// binaryVariable is the environment variable with the path of the program.
	binaryVariable = "GATEHOUSE_BINARY"
	command        = "github.com/gatehouse-dev/gatehouse/cmd/gatehouse"
	// versionFile, next to the go.mod of a test, is the go.mod of the program's build.
	versionFile = "gatehouse.mod"
	// withoutPlugins is the build tag that excludes Go plugins from the kustomize in kubectl, where they cannot
	// be enabled anyway. A program that may load plugins keeps all functions that they could call, and only the
	// C linker can link it: that takes several times as much time and space.
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
	built, buildErr := build(".")
	if buildErr == nil {
		return built, nil
	}
	found, pathErr := exec.LookPath("gatehouse")
	if pathErr == nil {
		return filepath.Abs(found)
	}
	return "", fmt.Errorf(`there is no program for the server. Choose its version in the folder of go.mod:
  go mod init -modfile=%[1]s gatehouse
  go get -tool -modfile=%[1]s %[2]s
or set $%[3]s to a program, or put gatehouse on the PATH
%[4]w`,
		versionFile, command, binaryVariable, errors.Join(buildErr, pathErr))
})

// build builds the program in the module of a directory, such as the module of a test. It uses the versions of
// the module's gatehouse.mod, or of go.mod if there is none. The result stays in the user's cache. While the
// dependencies of the module do not change, go build finds the result up to date.
func build(dir string) (string, error) {
	module, err := run(dir, "go", []string{"env", "GOMOD"})
	if err != nil {
		return "", err
	}
	args := []string{"build", "-tags=" + withoutPlugins, "-ldflags=-s -w"}
	var environment []string
	if version := filepath.Join(filepath.Dir(module), versionFile); exists(version) {
		// Workspaces and vendored packages belong to go.mod.
		args, environment = append(args, "-modfile="+version, "-mod=readonly"), []string{"GOWORK=off"}
		module = version
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(module))
	cache = filepath.Join(cache, "gatehouse", "test", fmt.Sprintf("%x", key[:8]))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	// Test binaries run concurrently.
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path := filepath.Join(cache, "gatehouse")
	if _, err := run(dir, "go", append(args, "-o", path, command), environment...); err != nil {
		return "", err
	}
	return path, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs a command in a directory and returns its output.
func run(dir, name string, args []string, environment ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), environment...)
	out, err := cmd.Output()
	if err != nil {
		text := ""
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			text = ": " + strings.TrimSpace(string(exit.Stderr))
		}
		return "", fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(string(out)), nil
}
