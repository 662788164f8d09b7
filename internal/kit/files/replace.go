package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxLinks bounds the links that are followed in a row, as Linux does.
const maxLinks = 40

// Replace writes a file so that a reader sees the old content or the new one, never a part. If the
// path is a link, the link stays, and its target is replaced. If the target is not a regular file,
// such as the null device or a pipe with a reader, Replace writes to it. With sync, the content is
// on the disk when Replace returns. It is an error if a link or a named pipe belongs to another
// user except root: in a directory where all may write, that user would choose who gets the
// content.
func Replace(path string, data []byte, mode fs.FileMode, sync bool) error {
	at, err := follow(path)
	if err != nil {
		return err
	}
	info, err := os.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "write", Path: path, Err: syscall.EISDIR}
	case info.Mode()&fs.ModeNamedPipe != 0 && !trusted(info):
		return &fs.PathError{Op: "write", Path: path, Err: errors.New("the pipe belongs to another user")}
	case !info.Mode().IsRegular():
		return pass(at, data)
	}
	f, err := os.CreateTemp(filepath.Dir(at), "."+filepath.Base(at)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), at)
	}
	return err
}

// trusted reports whether a file belongs to this user or to root.
func trusted(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}

// follow returns the target of links. Links in /proc to open files are not paths, and are returned
// as they are.
func follow(path string) (string, error) {
	for at, i := path, 0; ; i++ {
		info, err := os.Lstat(at)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return at, nil
		}
		if !trusted(info) {
			return "", &fs.PathError{Op: "open", Path: at, Err: errors.New("the link belongs to another user; remove it, or write the file elsewhere")}
		}
		if info, err := os.Stat(at); err == nil && !info.Mode().IsRegular() {
			return at, nil
		}
		if i == maxLinks {
			return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		next, err := os.Readlink(at)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(at), next)
		}
		at = next
	}
}

// pass writes to a file that is not regular. It does not wait for a reader of a named pipe.
func pass(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
