package etcd

import (
	"cmp"
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
// directory. The text of the error names the process.
var ErrInUse = errors.New("in use")

// lockName is the name of the file whose lock belongs to the process that uses a directory. The lines
// of the file are the endpoint of the process's etcd, the number of the process, the URL of its API,
// and its version. The endpoint and the URL are empty until they are served, and the version is empty
// for a command. Programs before the first release with backups write nothing, and later ones may
// write more lines.
const lockName = "lock"

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
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is %w by %s", dir, ErrInUse, readOwner(f))
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
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return "", err
	}
	defer f.Close()
	held, err := isHeld(f)
	if err != nil || !held {
		return "", err
	}
	o := readOwner(f)
	switch {
	case o.endpoint != "":
		return reachable(o.endpoint, o.pid), nil
	case !o.current:
		return "", fmt.Errorf("%s is %w by %s, which has not written where its etcd is: it is starting, or it is a server of an older version, whose own program works on its data", dir, ErrInUse, o)
	}
	return "", fmt.Errorf("%s is %w by %s", dir, ErrInUse, o)
}

// Serving returns the URL of the API server that has the lock of a directory and belongs to this user.
// The error is a sentence with the reason if there is no such server. Other users must not be able to
// hold the lock, so only this user may have access to the file.
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
	held, err := isHeld(f)
	if err != nil {
		return "", err
	}
	if o := readOwner(f); held && o.url != "" {
		return o.url, nil
	}
	return "", errNoServer
}

// ServerURL returns the URL of the API server that holds the lock of a directory, and "" if none does. Do not send credentials
// there without checking its certificate: the file has the URL.
func ServerURL(dir string) string {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return ""
	}
	defer f.Close()
	if held, err := isHeld(f); err != nil || !held {
		return ""
	}
	return readOwner(f).url
}

var errNoServer = errors.New("no server of this user runs with its data directory")

// isHeld reports whether a process holds the lock of a file.
func isHeld(f *os.File) (bool, error) {
	// A shared lock does not block other readers.
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil || errors.Is(err, syscall.EWOULDBLOCK) {
		return err != nil, nil
	}
	return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
}

// owner is the process that holds a lock, as the lines of the file describe it.
type owner struct {
	endpoint, pid, url, version string
	// current reports whether the process writes all four lines. Older programs do not.
	current bool
}

func readOwner(f *os.File) owner {
	text := make([]byte, 4096)
	n, _ := f.ReadAt(text, 0)
	lines := strings.Split(string(text[:n]), "\n")
	o := owner{current: len(lines) > 3}
	for i, field := range []*string{&o.endpoint, &o.pid, &o.url, &o.version} {
		if i < len(lines)-1 {
			*field = lines[i]
		}
	}
	return o
}

// String names the process in an error.
func (o owner) String() string {
	name := "another process"
	if _, err := strconv.Atoi(o.pid); err == nil {
		name = "process " + o.pid
	}
	switch {
	case o.url != "":
		return fmt.Sprintf("%s, the server at %s", name, o.url)
	case o.version != "" && o.endpoint == "":
		return fmt.Sprintf("%s, a server of version %q that does not serve yet", name, o.version)
	}
	return name
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
