package harness

import (
	"errors"
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
	// ballast is the path of a file on it, as others see it.
	ballast string
}

// StartOnDisk starts a server whose data directory is on a disk of so many bytes. Users
// may have such disks in namespaces of their own; the test is skipped on a machine that
// does not let them.
func StartOnDisk(t testing.TB, size int64, args ...string) (*Server, *Disk) {
	t.Helper()
	dir := t.TempDir()
	wrap := func(name string, args ...string) []string {
		return append([]string{"-c", `mount -t tmpfs -o size="$1",mode=700 tmpfs "$2" && shift 2 && exec "$@"`, "sh", strconv.FormatInt(size, 10), dir, name}, args...)
	}
	probe := exec.Command("/bin/sh", wrap("true")...)
	probe.SysProcAttr = ownMounts()
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("this machine does not let a test mount a disk of its own: %v %s", err, out)
	}
	s := &Server{DataDir: dir, args: append([]string{"--kubeconfig-out", filepath.Join(t.TempDir(), "kubeconfig")}, args...)}
	s.wrap = func(name string, args ...string) (string, []string, *syscall.SysProcAttr) {
		return "/bin/sh", wrap(name, args...), ownMounts()
	}
	if err := s.start("0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.runner != nil {
			s.Stop(t)
		}
	})
	return s, &Disk{filepath.Join("/proc", strconv.Itoa(s.PID()), "root", dir, "ballast")}
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
	if err := os.Remove(d.ballast); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	f, err := os.Create(d.ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The server writes, too.
	Eventually(t, "the disk is filled", func() error {
		var stat syscall.Statfs_t
		if err := syscall.Statfs(filepath.Dir(d.ballast), &stat); err != nil {
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
