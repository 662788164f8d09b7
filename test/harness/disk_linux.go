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

// Disk is a small file system in memory for one server.
type Disk struct {
	// Dir is a directory on the disk, which exists until the end of the test.
	Dir string
}

// NewDisk creates a disk of size bytes, with a mount in a user namespace. It returns an error on machines
// that forbid such mounts.
func NewDisk(t testing.TB, size int64) (*Disk, error) {
	t.Helper()
	dir := t.TempDir()
	// The disk exists as long as a process in its mount namespace.
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

// StartOnDisk starts a server whose data directory is on a disk of size bytes. It skips the test on machines
// that forbid such mounts.
func StartOnDisk(t testing.TB, size int64, args ...string) (*Server, *Disk) {
	t.Helper()
	disk, err := NewDisk(t, size)
	if err != nil {
		t.Skipf("this machine does not let a test have a disk of its own: %v", err)
	}
	return StartOn(t, disk.Dir, args...), disk
}

// ownMounts returns the attributes of a process whose mounts are invisible to other processes.
func ownMounts() *syscall.SysProcAttr {
	attr := tied()
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	return attr
}

// Leave fills or empties the disk until free bytes are left.
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
	// The server writes at the same time.
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

// StartLimited starts a server that cannot write a file longer than size bytes, as if its disk failed there.
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
