package datalock

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

// File is the name of the file whose lock belongs to the process that uses a directory. The lines
// of the file are the endpoint of the process's etcd, the number of the process, the URL of its API,
// and its version. The endpoint and the URL are empty until they are served, and the version is empty
// for a command. Programs before the first release with backups write nothing, and later ones may
// write more lines.
const File = "lock"

// Serving returns the URL of the API server that has the lock of a directory and belongs to this user.
// The error is a sentence with the reason if there is no such server. Other users must not be able to
// hold the lock, so only this user may have access to the file.
func Serving(dir string) (url string, err error) {
	f, err := os.OpenFile(filepath.Join(dir, File), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
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
	held, err := Held(f)
	if err != nil {
		return "", err
	}
	if o := OwnerOf(f); held && o.URL != "" {
		return o.URL, nil
	}
	return "", errNoServer
}

// ServerURL returns the URL of the API server that holds the lock of a directory, and "" if none does. Do not send credentials
// there without checking its certificate: the file has the URL.
func ServerURL(dir string) string {
	f, err := os.Open(filepath.Join(dir, File))
	if err != nil {
		return ""
	}
	defer f.Close()
	if held, err := Held(f); err != nil || !held {
		return ""
	}
	return OwnerOf(f).URL
}

var errNoServer = errors.New("no server of this user runs with its data directory")

// Held reports whether a process holds the lock of a file.
func Held(f *os.File) (bool, error) {
	// A shared lock does not block other readers.
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil || errors.Is(err, syscall.EWOULDBLOCK) {
		return err != nil, nil
	}
	return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
}

// Owner is the process that holds a lock, as the lines of the file describe it.
type Owner struct {
	Endpoint, PID, URL, Version string
	// Current reports whether the process writes all four lines. Older programs do not.
	Current bool
}

// OwnerOf reads a lock file.
func OwnerOf(f *os.File) Owner {
	text := make([]byte, 4096)
	n, _ := f.ReadAt(text, 0)
	lines := strings.Split(string(text[:n]), "\n")
	o := Owner{Current: len(lines) > 3}
	for i, field := range []*string{&o.Endpoint, &o.PID, &o.URL, &o.Version} {
		if i < len(lines)-1 {
			*field = lines[i]
		}
	}
	return o
}

// String names the process in an error.
func (o Owner) String() string {
	name := "another process"
	if _, err := strconv.Atoi(o.PID); err == nil {
		name = "process " + o.PID
	}
	switch {
	case o.URL != "":
		return fmt.Sprintf("%s, the server at %s", name, o.URL)
	case o.Version != "" && o.Endpoint == "":
		return fmt.Sprintf("%s, a server of version %q that does not serve yet", name, o.Version)
	}
	return name
}
