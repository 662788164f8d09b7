package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// socketDirs is the beginning of the names of directories with sockets, and socketName the name
// of the socket in each.
const socketDirs, socketName = "gatehouse-socket-", "client"

// errSocketDir means that this process must not lock a directory.
var errSocketDir = errors.New("in use, gone or of another user")

// makeSocketDir makes a directory for the socket of an etcd, and removes the directories that
// killed servers left behind. The directory is locked until the file is closed; the kernel
// closes the file of a process that is killed.
//
// The directory is a temporary directory with a short path: the path of a unix socket is
// limited to about 100 bytes, and a data directory may have a longer path.
func makeSocketDir() (*os.File, error) {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), socketDirs+"*"))
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
		if name, err = os.MkdirTemp("", socketDirs); err != nil {
			return nil, err
		}
		var f *os.File
		// Another server may take the directory for one that was left behind before this server
		// has locked it.
		if f, err = lockSocketDir(name); !errors.Is(err, errSocketDir) {
			return f, err
		}
	}
	return nil, err
}

// lockSocketDir locks a directory that is not in use. The error is errSocketDir when the
// directory is in use, is gone or belongs to another user.
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

// removeSocketDir removes a locked directory and releases the lock. A directory with any other
// file than the socket stays.
func removeSocketDir(f *os.File) {
	os.Remove(filepath.Join(f.Name(), socketName))
	os.Remove(f.Name())
	f.Close()
}
