package subprocess

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Places are files and directories of this machine that a program finds at other paths. The zero value is none.
type Places struct {
	// Root is an empty directory, below which the file system of the program is built.
	Root string
	// Here are the sources, and There the absolute paths at which the program finds them, in the same order. No path is below
	// another one.
	Here, There []string
}

// mostEntries bounds the files of a directory in which a place is made: each is a mount, whose number the system limits.
const mostEntries = 20_000

// errManyFiles is the error for a directory with more files than mostEntries.
const errManyFiles = syscall.EMFILE

// Supports returns an error if this system gives programs no file system of their own, or if no place can be made in a
// directory. p.Root must exist.
func (p Places) Supports(dir string) error {
	program, err := exec.LookPath("true")
	if err != nil {
		return err
	}
	p.Here, p.There = []string{program}, []string{filepath.Join(dir, "gatehouse-place/true")}
	process, err := p.Start([]string{program}, nil, "", io.Discard, io.Discard, nil)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		if errors.Is(failed.Err, errManyFiles) {
			return fmt.Errorf("%s has more than %d files", dir, mostEntries)
		}
		return failed.Err
	}
	if err != nil {
		return err
	}
	<-process.Gone
	process.Stop(0)
	return process.Err
}
