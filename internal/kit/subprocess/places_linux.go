package subprocess

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate gives the process of a command a mount namespace, and a user namespace if only that permits mounts. The user
// and the group stay the same.
func isolate(cmd *exec.Cmd) {
	a := cmd.SysProcAttr
	a.Cloneflags = syscall.CLONE_NEWNS
	if os.Geteuid() == 0 {
		// A user namespace would take away ports below 1024.
		return
	}
	a.Cloneflags |= syscall.CLONE_NEWUSER
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
}

// enter makes this process, which has a mount namespace of its own, see the places. The program that it starts has no
// capabilities in the user namespace.
func (p Places) enter() error {
	dir, err := os.Getwd()
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		return err
	}
	b := builder{root: p.Root, own: map[string]bool{}}
	if err := b.copy("/"); err != nil {
		return err
	}
	for i, there := range p.There {
		if err := b.place(p.Here[i], there); err != nil {
			return err
		}
	}
	// The old root is mounted over the new one, and then taken away: pivot_root(2).
	if err := unix.Chdir(p.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}

// builder builds a file system below root from the one of this machine.
type builder struct {
	root string
	// own are the paths, as the program sees them, of directories in which the builder can make files.
	own map[string]bool
}

// copy mounts an empty directory for a directory of this machine, with all its files. New files in it are the program's alone.
func (b *builder) copy(dir string) error {
	at := filepath.Join(b.root, dir)
	var info unix.Stat_t
	if err := unix.Stat(dir, &info); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=%04o", info.Mode&0o7777|0o700)); err != nil {
		return err
	}
	// The new root is not below itself.
	if err := unix.Mount("", at, "", unix.MS_UNBINDABLE, ""); err != nil {
		return err
	}
	b.own[dir] = true
	entries, err := os.ReadDir(dir)
	if len(entries) > mostEntries {
		return errManyFiles
	}
	for _, e := range entries {
		here := filepath.Join(dir, e.Name())
		if _, err := os.Stat(here); err != nil && e.Type()&os.ModeSymlink == 0 {
			// It is gone meanwhile, or the program could not read it either.
			continue
		}
		if err := b.show(e, here); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// show makes an entry of a directory of this machine visible at the same path below root.
func (b *builder) show(e fs.DirEntry, here string) error {
	at := filepath.Join(b.root, here)
	if e.Type()&os.ModeSymlink == 0 {
		return b.bind(here, at)
	}
	target, err := os.Readlink(here)
	if err != nil {
		return err
	}
	return os.Symlink(target, at)
}

// bind makes a file or directory of this machine visible at a path, which may not exist.
func (b *builder) bind(here, at string) error {
	info, err := os.Stat(here)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(at, 0o755)
	} else {
		var f *os.File
		if f, err = os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			f.Close()
		}
	}
	if err != nil {
		return err
	}
	return unix.Mount(here, at, "", unix.MS_BIND|unix.MS_REC, "")
}

// place makes a file or directory of this machine visible at a path of the program. Missing directories are made.
func (b *builder) place(here, there string) error {
	parent, there := "/", resolve(there)
	for _, name := range strings.Split(strings.Trim(filepath.Dir(there), "/"), "/") {
		if name == "" {
			break
		}
		next := filepath.Join(parent, name)
		if _, err := os.Lstat(filepath.Join(b.root, next)); err != nil {
			if err := b.openUp(parent); err != nil {
				return err
			}
			if err := os.Mkdir(filepath.Join(b.root, next), 0o755); err != nil {
				return err
			}
			b.own[next] = true
		}
		parent = next
	}
	if _, err := os.Lstat(filepath.Join(b.root, there)); err != nil {
		if err := b.openUp(parent); err != nil {
			return err
		}
	}
	return b.bind(here, filepath.Join(b.root, there))
}

// openUp makes it possible to make files in a directory.
func (b *builder) openUp(dir string) error {
	if b.own[dir] {
		return nil
	}
	return b.copy(dir)
}

// resolve returns a path without the symbolic links of this machine.
func resolve(name string) string {
	for dir, rest := name, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
	}
}

// arguments returns the places as arguments of a supervisor, and placesOf reads them.
func (p Places) arguments() []string {
	args := []string{p.Root, strconv.Itoa(len(p.Here))}
	return append(append(args, p.Here...), p.There...)
}

func placesOf(args []string) (p Places, rest []string) {
	n, _ := strconv.Atoi(args[1])
	rest = args[2:]
	return Places{args[0], rest[:n], rest[n : 2*n]}, rest[2*n:]
}
