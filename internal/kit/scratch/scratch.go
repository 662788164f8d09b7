package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	// own is the name prefix of the directories that New makes.
	own = "gatehouse-scratch-"
	// suites is the name prefix of the directories that envtest of controller-runtime makes for the
	// programs that it starts. It removes them when it stops the programs; if it is killed, they
	// stay.
	suites = "k8s_test_framework_"
	// mark is the locked file in a directory. It holds the process id of the owner.
	mark = ".gatehouse-scratch"
)

// Dir is a temporary directory of this process. The methods of a nil Dir do nothing.
type Dir struct {
	path string
	mark *os.File
}

// New makes a temporary directory, and removes the directories of ended processes.
func New() (*Dir, error) {
	Sweep()
	path, err := os.MkdirTemp("", own)
	if err != nil {
		return nil, err
	}
	return take(path, os.Getpid())
}

// Adopt takes a directory that envtest has made for this process, whose owner is the process that
// runs envtest. It returns nil for any other directory, which its own process manages.
func Adopt(path string, owner int) (*Dir, error) {
	path = filepath.Clean(path)
	if filepath.Dir(path) != filepath.Clean(os.TempDir()) || !strings.HasPrefix(filepath.Base(path), suites) {
		return nil, nil
	}
	return take(path, owner)
}

// take marks a directory. The mark is locked before other processes can see it.
func take(path string, owner int) (*Dir, error) {
	f, err := os.CreateTemp(path, mark+"-")
	if err != nil {
		return nil, fmt.Errorf("marking %s: %w", path, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(owner))
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(path, mark))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("marking %s: %w", path, err)
	}
	return &Dir{path: path, mark: f}, nil
}

// Path returns the path of the directory.
func (d *Dir) Path() string { return d.path }

// Remove removes the directory and its contents.
func (d *Dir) Remove() {
	if d == nil {
		return
	}
	remove(d.path, os.RemoveAll)
	d.mark.Close()
}

// Release leaves the directory to its owner.
func (d *Dir) Release() {
	if d == nil {
		return
	}
	os.Remove(filepath.Join(d.path, mark))
	d.mark.Close()
}

// Sweep removes the directories whose process and whose owner have ended. It skips directories of
// other users, and ignores errors.
func Sweep() {
	for _, prefix := range []string{own, suites} {
		left, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*", mark))
		if err != nil {
			continue
		}
		for _, name := range left {
			if abandoned(name) {
				remove(filepath.Dir(name), os.RemoveAll)
			}
		}
	}
}

// remove removes a directory, its mark last: if the process ends meanwhile, the next one removes
// the rest. all removes a file, or a directory and its contents.
func remove(path string, all func(string) error) {
	entries, _ := os.ReadDir(path)
	for _, entry := range entries {
		if entry.Name() != mark {
			_ = all(filepath.Join(path, entry.Name()))
		}
	}
	_ = all(path)
}

// abandoned reports whether no process uses the directory of a mark.
func abandoned(name string) bool {
	f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return false
	}
	text := make([]byte, 20)
	n, _ := f.Read(text)
	owner, err := strconv.Atoi(string(text[:n]))
	if err != nil || owner <= 0 {
		return false
	}
	return errors.Is(syscall.Kill(owner, 0), syscall.ESRCH)
}
