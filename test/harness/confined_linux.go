package harness

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// confine is a script that makes every file read-only except those below a directory, and runs a command as a
// user.
const confine = `mount --bind "$1" "$1" && for at in / /tmp /var/tmp /dev/shm /run; do
	if mountpoint -q "$at"; then mount -o remount,bind,ro "$at" || exit 1; fi
done && user=$2 && shift 2 && exec unshare --user --map-user="$user" --map-group="$user" "$@"`

// StartConfined starts a server as in a container with a read-only root: the server runs as the given user
// and can write only below its data directory. If the machine forbids mounts, the server gets a read-only
// directory for TMPDIR and HOME instead.
func StartConfined(t testing.TB, dir string, user int, args ...string) *Server {
	t.Helper()
	wrap := func(name string, args ...string) []string {
		return append([]string{"-c", confine, "sh", dir, strconv.Itoa(user), name}, args...)
	}
	s := &Server{DataDir: dir, args: args}
	probe := exec.Command("/bin/sh", wrap("true")...)
	probe.SysProcAttr = ownMounts()
	if out, err := probe.CombinedOutput(); err != nil {
		t.Logf("this machine does not let a test make its files read-only: %v %s", err, out)
		closed := t.TempDir()
		if err := os.Chmod(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		s.wrap = func(name string, args ...string) (string, []string, *syscall.SysProcAttr) {
			return "/usr/bin/env", append([]string{"TMPDIR=" + closed, "HOME=" + closed, name}, args...), tied()
		}
	} else {
		s.wrap = func(name string, args ...string) (string, []string, *syscall.SysProcAttr) {
			return "/bin/sh", wrap(name, args...), ownMounts()
		}
	}
	return startServer(t, s)
}
