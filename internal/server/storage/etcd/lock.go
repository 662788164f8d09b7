package etcd

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gatehouse-dev/gatehouse/internal/kit/datalock"
)

// ErrInUse is wrapped by the error of Start and TakeLock when another process has the
// directory. The text of the error names the process.
var ErrInUse = errors.New("in use")

// Lock makes a second process that uses the same data fail at once. The kernel releases the lock
// when the process ends in any way. Functions that open data in place are methods of Lock: without
// the lock, the database of a running etcd is locked and an open waits.
type Lock struct {
	dir  string
	file *os.File
	// version is the version of the program.
	version string
}

// TakeLock takes the lock of a directory. It makes the directory if that does not exist. The
// error wraps ErrInUse when another process has the lock.
func TakeLock(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, datalock.File), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is %w by %s", dir, ErrInUse, datalock.OwnerOf(f))
		}
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	l := &Lock{dir: dir, file: f}
	// The endpoint of a killed process is no longer valid.
	if err := cmp.Or(f.Truncate(0), l.announce("", "")); err != nil {
		f.Close()
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return l, nil
}

// announce writes the endpoint of this process's etcd and the URL of its API into the file; either is
// empty until it is served.
func (l *Lock) announce(endpoint, url string) error {
	_, err := l.file.WriteAt(fmt.Appendf(nil, "%s\n%d\n%s\n%s\n", endpoint, os.Getpid(), url, l.version), 0)
	return err
}

// Close releases the lock.
func (l *Lock) Close() error { return errors.Join(l.file.Truncate(0), l.file.Close()) }

// Running returns the endpoint of the etcd that another process serves from a directory, empty
// when no process does. The error wraps ErrInUse when a process has the directory and its etcd
// does not serve, and fs.ErrNotExist when the directory has never had an etcd.
func Running(dir string) (endpoint string, err error) {
	f, err := os.Open(filepath.Join(dir, datalock.File))
	if err != nil {
		return "", err
	}
	defer f.Close()
	held, err := datalock.Held(f)
	if err != nil || !held {
		return "", err
	}
	o := datalock.OwnerOf(f)
	switch {
	case o.Endpoint != "":
		return reachable(o.Endpoint, o.PID), nil
	case !o.Current:
		return "", fmt.Errorf("%s is %w by %s, which has not written where its etcd is: it is starting, or it is a server of an older version, whose own program works on its data", dir, ErrInUse, o)
	}
	return "", fmt.Errorf("%s is %w by %s", dir, ErrInUse, o)
}

// reachable is the endpoint at which this process reaches a socket. A process with a private
// directory of temporary files, such as a service of systemd, has the socket in this directory:
// other processes of the administrator reach it below /proc.
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
