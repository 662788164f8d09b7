package subprocess

import (
	"errors"
	"io"
	"io/fs"
	"os/exec"
)

// Places are files and directories of this machine that a program finds at other paths. The zero value is none.
type Places struct {
	// Root is an empty directory, below which the file system of the program is built.
	Root string
	// Here are the sources, and There the absolute paths at which the program finds them, in the same order. No path is below
	// another one.
	Here, There []string
}

// Supports returns an error if this system gives programs no file system of their own. p.Root must exist.
func (p Places) Supports() error {
	program, err := exec.LookPath("true")
	if err != nil {
		return err
	}
	p.Here, p.There = []string{program}, []string{"/gatehouse-place/true"}
	process, err := p.Start([]string{program}, nil, "", io.Discard, io.Discard, nil)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return failed.Err
	}
	if err != nil {
		return err
	}
	<-process.Gone
	process.Stop(0)
	return process.Err
}
