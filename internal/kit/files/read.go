package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// Configuration bounds a file with settings, keys or certificates, in bytes.
	Configuration = 16 << 20
	// Objects bounds a file with objects of a repository or of a cluster. API servers reject objects of more than 3
	// MiB; a file of many objects may be larger.
	Objects = 256 << 20
)

// Refused is the reason why an existing, readable file is not read.
type Refused string

// Error implements error.
func (r Refused) Error() string { return string(r) }

// Read returns the content of a regular file of at most limit bytes, or of a link to one. It never waits for another
// process. The error for any other file wraps a Refused.
func Read(path string, limit int64) ([]byte, error) {
	f, err := open(path, limit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f, path, limit)
}

// ReadArgument is Read for a path of the command line. It also reads open files of the process, by which a shell passes
// the output of a command, and the null device, which is empty.
func ReadArgument(path string, limit int64) ([]byte, error) {
	if !PassedOn(path) {
		return Read(path, limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f, path, limit)
}

// Open opens a regular file of any size, or a link to one, for streaming reads. It never waits for another process. The
// error for any other file wraps a Refused.
func Open(path string) (*os.File, error) { return open(path, math.MaxInt64) }

// ReadFrom returns the rest of in, at most limit bytes.
func ReadFrom(in io.Reader, limit int64) ([]byte, error) { return readUpTo(in, 0, limit) }

// Check returns the error of Read that can be detected without reading. It is for files that a library opens itself.
func Check(path string, limit int64) error {
	f, err := open(path, limit)
	if err != nil {
		return err
	}
	return f.Close()
}

// CheckArgument is Check for a path of the command line, as ReadArgument reads it.
func CheckArgument(path string, limit int64) error {
	if PassedOn(path) {
		return nil
	}
	return Check(path, limit)
}

// PassedOn reports whether a path names the null device or an open file of this process, such as the pipe of a command
// whose output a shell passes.
func PassedOn(path string) bool {
	path = filepath.Clean(path)
	switch filepath.Dir(path) {
	case "/dev/fd", "/proc/self/fd":
		return true
	}
	return path == "/dev/stdin" || path == os.DevNull
}

// open opens a regular file. Opening a device can have effects, and opening a named pipe waits for its writer, so it
// checks the file first. The file may be replaced in between, so it opens without waiting and checks again.
func open(path string, limit int64) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, opening(path, err)
	}
	if err := refusal(path, info, limit); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = refusal(path, info, limit)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// opening returns an error of checking a file in the form of an error of opening it.
func opening(path string, err error) error {
	return &fs.PathError{Op: "open", Path: path, Err: Cause(err)}
}

// Cause returns an error of the file system without the operation and the path.
func Cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// Plain returns an error of the file system without the name of the system call.
func Plain(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", at.Path, at.Err)
	}
	return err
}

// refusal returns the reason why a file is not read; nil if it can be read.
func refusal(path string, info fs.FileInfo, limit int64) error {
	switch {
	case info.IsDir():
		return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		what := kind(info.Mode())
		if link, err := os.Lstat(path); err == nil && link.Mode()&fs.ModeSymlink != 0 {
			what = "a link to " + what
		}
		return &fs.PathError{Op: "open", Path: path, Err: Refused("is " + what + ": only regular files are read")}
	case info.Size() > limit:
		return &fs.PathError{Op: "read", Path: path, Err: tooLarge(limit)}
	}
	return nil
}

// kind names the type of a file that is not regular.
func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

func tooLarge(limit int64) Refused { return Refused(fmt.Sprintf("has more than %s", size(limit))) }

func size(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

func read(f *os.File, path string, limit int64) ([]byte, error) {
	var expected int64
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		expected = info.Size()
	}
	data, err := readUpTo(f, expected, limit)
	if errors.As(err, new(Refused)) {
		err = &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data, err
}

// readUpTo reads to the end. It is an error if there are more than limit bytes.
func readUpTo(in io.Reader, expected, limit int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(expected, limit)) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(in, limit+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > limit {
		return nil, tooLarge(limit)
	}
	return b.Bytes(), nil
}
