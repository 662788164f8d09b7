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

// lockName is the name of the file whose lock belongs to the process that uses a directory. The lines
// of the file are the endpoint of the process's etcd, the number of the process, the URL of its API,
// and its version. The first and the third are empty while the process does not serve that. Programs
// before the first release with backups write nothing, and later ones may write more lines.
const lockName = "lock"

// Lock makes a second process that uses the same data fail at once. The kernel releases the
// lock when the process ends, however the process ends.
type Lock struct {
	file *os.File
	// version is that of the program.
	version string
}

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
	return &Lock{file: f}, nil
}

// announce writes into the file what this process offers: the endpoint of its etcd, and the URL of its
// API; empty for what it does not serve yet.
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
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines, held, err := holder(f)
	switch {
	case err != nil || !held:
		return "", err
	case len(lines) < 2, lines[0] == "" && len(lines) < 4:
		return "", fmt.Errorf("%s is %w, which has not written where its etcd is: it is starting, or it is a server of an older version, whose own program works on its data", dir, ErrInUse)
	case lines[0] == "":
		return "", fmt.Errorf("%s is %w, a server of version %q that does not serve yet", dir, ErrInUse, lines[3])
	}
	return reachable(lines[0], lines[1]), nil
}

// Serving returns the URL of the API server that has the lock of a directory and belongs to this user.
// The error says in a sentence why there is none: nobody else may be able to hold the lock, and so the
// file must be this user's alone.
func Serving(dir string) (url string, err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return "", errNoServer
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if of, ok := info.Sys().(*syscall.Stat_t); !ok || int(of.Uid) != os.Geteuid() || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("other users than this one may use %s", f.Name())
	}
	lines, held, err := holder(f)
	switch {
	case err != nil:
		return "", err
	case !held || len(lines) < 3 || lines[2] == "":
		return "", errNoServer
	}
	return lines[2], nil
}

var errNoServer = errors.New("no server of this user runs with its data directory")

// holder reports whether a process holds the lock of a file, and returns the lines that it has written.
func holder(f *os.File) (lines []string, held bool, err error) {
	// A shared lock keeps no other reader away.
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		return nil, false, nil
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	text := make([]byte, 4096)
	n, _ := f.ReadAt(text, 0)
	return strings.Split(string(text[:n]), "\n"), true, nil
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
