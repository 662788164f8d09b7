package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Disk is a small disk of a server's own, in memory.
type Disk struct {
	// Dir is a directory on it, which is there until the test ends.
	Dir string
}

// NewDisk makes a disk of so many bytes. Users may have such disks in namespaces of their own; the error is that of a machine
// that does not let them.
func NewDisk(t testing.TB, size int64) (*Disk, error) {
	t.Helper()
	dir := t.TempDir()
	// The disk lives as long as a process in its namespace.
	holder := exec.Command("/bin/sh", "-c", `mount -t tmpfs -o size="$1",mode=700 tmpfs "$2" && echo mounted && exec sleep 86400`, "sh", strconv.FormatInt(size, 10), dir)
	holder.SysProcAttr = ownMounts()
	log := &log{}
	holder.Stderr = log
	out, err := holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := holder.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("mounting a disk: %w: %s", err, log)
	}
	return &Disk{filepath.Join("/proc", strconv.Itoa(holder.Process.Pid), "root", dir)}, nil
}

// StartOnDisk starts a server whose data directory is on a disk of so many bytes. The test is skipped on a machine that does
// not let it have one.
func StartOnDisk(t testing.TB, size int64, args ...string) (*Server, *Disk) {
	t.Helper()
	disk, err := NewDisk(t, size)
	if err != nil {
		t.Skipf("this machine does not let a test have a disk of its own: %v", err)
	}
	return StartOn(t, disk.Dir, args...), disk
}

// ownMounts are the attributes of a process that may mount what nobody else sees.
func ownMounts() *syscall.SysProcAttr {
	attr := tied()
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	return attr
}

// Leave fills the disk so that so many bytes are free, or gives them back.
func (d *Disk) Leave(t testing.TB, free int64) {
	t.Helper()
	ballast := filepath.Join(d.Dir, "ballast")
	if err := os.Remove(ballast); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The server writes, too.
	Eventually(t, "the disk is filled", func() error {
		var stat syscall.Statfs_t
		if err := syscall.Statfs(d.Dir, &stat); err != nil {
			return err
		}
		fill := int64(stat.Bavail)*stat.Bsize - free
		if fill <= 0 {
			return nil
		}
		return syscall.Fallocate(int(f.Fd()), 0, 0, fill)
	})
}

// StartLimited starts a server that can write no file of more than so many bytes, as if
// its disk failed there.
func StartLimited(t testing.TB, dir string, size int64, args ...string) *Server {
	t.Helper()
	s := &Server{DataDir: dir, args: args}
	s.wrap = func(name string, args ...string) (string, []string, *syscall.SysProcAttr) {
		return "/bin/sh", append([]string{"-c", `ulimit -f "$1" && shift && exec "$@"`, "sh", strconv.FormatInt(size/512, 10), name}, args...), tied()
	}
	if err := s.start("0"); err != nil {
		t.Fatal(err)
	}
	s.wrap = nil
	t.Cleanup(func() {
		if s.runner != nil {
			s.Stop(t)
		}
	})
	return s
}
