package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrInUse is wrapped by the error of Start and TakeLock when another process has the
// directory.
var ErrInUse = errors.New("in use by another process")

// lockName is the name of the file whose lock belongs to the process that uses a directory.
// When the etcd of that process serves, the process writes its endpoint into the file.
const lockName = "lock"

// Lock makes a second process that uses the same data fail at once. The kernel releases the
// lock when the process ends, however the process ends.
type Lock struct{ file *os.File }

// TakeLock takes the lock of a directory. It makes the directory if that does not exist. The
// error wraps ErrInUse when another process has the lock.
func TakeLock(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is %w", dir, ErrInUse)
		}
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	// The endpoint of a killed process is no longer valid.
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return &Lock{f}, nil
}

// announce writes the endpoint of this process's etcd into the file.
func (l *Lock) announce(endpoint string) error {
	_, err := l.file.WriteAt(fmt.Appendf(nil, "%s\n%d\n", endpoint, os.Getpid()), 0)
	return err
}

// Close releases the lock.
func (l *Lock) Close() error { return errors.Join(l.file.Truncate(0), l.file.Close()) }

// Running returns the endpoint of the etcd that another process serves from a directory, empty
// when no process does. The error wraps ErrInUse when a process has the directory and its etcd
// does not serve, and fs.ErrNotExist when the directory has never had an etcd.
func Running(dir string) (endpoint string, err error) {
	path := filepath.Join(dir, lockName)
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// A shared lock keeps no other reader away.
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		return "", nil
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return "", &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	text := make([]byte, 4096)
	n, _ := f.ReadAt(text, 0)
	endpoint, pid, ok := strings.Cut(strings.TrimSpace(string(text[:n])), "\n")
	if !ok {
		return "", fmt.Errorf("%s is %w, which does not serve", dir, ErrInUse)
	}
	return reachable(endpoint, pid), nil
}

// reachable is the endpoint by which this process reaches a socket. A process with temporary
// files of its own, as a service of systemd may have, has the socket among these: other
// processes of the administrator reach them below /proc.
func reachable(endpoint, pid string) string {
	socket, ok := strings.CutPrefix(endpoint, "unix://")
	if _, err := strconv.Atoi(pid); !ok || err != nil {
		return endpoint
	}
	if _, err := os.Stat(socket); err == nil {
		return endpoint
	}
	if there := filepath.Join("/proc", pid, "root", socket); exists(there) {
		return "unix://" + there
	}
	return endpoint
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
