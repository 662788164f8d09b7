package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// socketDir is the directory of the socket in the directory of the data. socketDirs begins the
	// names of temporary directories with sockets. socketName is the name of the socket in each.
	socketDir, socketDirs, socketName = "socket", "gatehouse-socket-", "client"
	// maxSocketPath is the longest path of a socket that every system supports, in bytes.
	maxSocketPath = 100
)

// errSocketDir means that this process must not lock a directory.
var errSocketDir = errors.New("in use, gone or of another user")

// makeSocketDir makes a directory for the socket of the etcd whose data are in data, which this
// process has locked. The directory is locked until the file is closed; the kernel closes the
// file of a process that is killed.
//
// The directory is among the data, which may be the only place where the server may write. The
// path of a unix socket is short, and some file systems have no sockets: then the directory is a
// temporary one.
func makeSocketDir(data string) (*os.File, error) {
	name, err := filepath.Abs(filepath.Join(data, socketDir))
	if err != nil {
		return nil, err
	}
	if mayHaveSocket(name) {
		f, err := lockSocketDir(name)
		if err != nil {
			return nil, err
		}
		// The directory may have been copied with the data.
		return f, f.Chmod(0o700)
	}
	f, err := makeTemporarySocketDir()
	if err != nil {
		return nil, fmt.Errorf("%s cannot have the socket, since its path is too long or its file system has no sockets, and neither can another directory; choose a shorter --data-dir, or a directory for temporary files by TMPDIR: %w", data, err)
	}
	return f, nil
}

// mayHaveSocket makes a directory that only this user may enter, and reports whether etcd can
// listen there.
func mayHaveSocket(dir string) bool {
	socket := filepath.Join(dir, socketName)
	// etcd has the path in a URL.
	if address := (url.URL{Path: socket}); len(socket) > maxSocketPath || address.EscapedPath() != socket {
		return false
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false
	}
	// A killed server leaves its socket.
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		os.Remove(dir)
		return false
	}
	return listener.Close() == nil
}

// temporaryDir returns the directory for temporary files, or /tmp if a socket below it would have too long a path.
func temporaryDir() string {
	dir := os.TempDir()
	if longest := filepath.Join(dir, socketDirs+"4294967295", socketName); len(longest) > maxSocketPath {
		return "/tmp"
	}
	return dir
}

// makeTemporarySocketDir makes a temporary directory for a socket, and removes the directories
// that killed servers left behind.
func makeTemporarySocketDir() (*os.File, error) {
	dir := temporaryDir()
	left, err := filepath.Glob(filepath.Join(dir, socketDirs+"*"))
	if err != nil {
		return nil, err
	}
	for _, name := range left {
		if f, err := lockSocketDir(name); err == nil {
			removeSocketDir(f)
		}
	}
	for range 10 {
		var name string
		if name, err = os.MkdirTemp(dir, socketDirs); err != nil {
			return nil, err
		}
		var f *os.File
		// Until this server has locked the directory, another server may treat it as left behind.
		if f, err = lockSocketDir(name); !errors.Is(err, errSocketDir) {
			return f, err
		}
	}
	return nil, err
}

// lockSocketDir locks a directory that is not in use. The error is errSocketDir when the directory
// is in use, does not exist or belongs to another user.
func lockSocketDir(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSocketDir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errSocketDir
		}
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil {
		// The process that had the file may have removed it just before.
		var now os.FileInfo
		if now, err = os.Lstat(name); err == nil && os.SameFile(opened, now) && opened.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid()) {
			return f, nil
		}
	}
	f.Close()
	return nil, errSocketDir
}

// removeSocketDir removes a locked directory and releases the lock. A directory with other files
// than the socket is kept.
func removeSocketDir(f *os.File) {
	os.Remove(filepath.Join(f.Name(), socketName))
	os.Remove(f.Name())
	f.Close()
}
