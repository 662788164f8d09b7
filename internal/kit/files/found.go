package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CheckFound returns an error for a path that no user has named and that leads out of the user's folders: the working
// directory and the named directories, each with the git work tree around it. Such a path is a link that was found in a
// folder, or a name in a file of the folder. Otherwise the author of the folder could read files of the user through
// the errors about their content. The error for a path outside wraps a Refused.
func CheckFound(path string, named ...string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return opening(path, err)
	}
	if target, err = filepath.Abs(target); err != nil {
		return err
	}
	return inside(path, target, named)
}

// ReadFound is Read for a path that CheckFound accepts.
func ReadFound(path string, limit int64, named ...string) ([]byte, error) {
	if err := CheckFound(path, named...); err != nil {
		return nil, err
	}
	return Read(path, limit)
}

// ReplaceOutput is Replace for a file that a user has named as output. A path in a folder of the user must not lead out
// of it through a link, which another author of the folder could have created.
func ReplaceOutput(path string, data []byte, mode fs.FileMode) error {
	if !PassedOn(path) {
		if err := checkOutput(path); err != nil {
			return err
		}
	}
	return Replace(path, data, mode, false)
}

func checkOutput(path string) error {
	at, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	here, err := folder(".")
	if err != nil || !within(here, at) {
		// The user has named a path elsewhere.
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(at))
	if err != nil {
		return opening(path, err)
	}
	target := filepath.Join(dir, filepath.Base(at))
	for range maxLinks {
		next, err := os.Readlink(target)
		if err != nil {
			return inside(path, target, nil)
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(target), next)
		}
		target = next
		// A dangling link has a directory that exists.
		if dir, err := filepath.EvalSymlinks(filepath.Dir(target)); err == nil {
			target = filepath.Join(dir, filepath.Base(target))
		}
	}
	return inside(path, target, nil)
}

// inside returns an error if the target of a path is outside of the working directory and of the named directories.
func inside(path, target string, named []string) error {
	for _, dir := range append([]string{"."}, named...) {
		if root, err := folder(dir); err == nil && within(root, target) {
			return nil
		}
	}
	return &fs.PathError{Op: "open", Path: path, Err: Refused(fmt.Sprintf("leads to %s, out of the working directory: only a file that the command line names may be there", target))}
}

// folder returns the git work tree around a directory, without links, and the directory itself if there is none. A work
// tree that is the home directory or the root does not count: it contains everything of the user.
func folder(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if absolute, err = filepath.EvalSymlinks(absolute); err != nil {
		return "", err
	}
	home, _ := os.UserHomeDir()
	for at := absolute; at != filepath.Dir(at) && at != home; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); !errors.Is(err, fs.ErrNotExist) {
			return at, nil
		}
	}
	return absolute, nil
}

// within reports whether a path is a directory or below it. Both are absolute.
func within(dir, path string) bool {
	below, err := filepath.Rel(dir, path)
	return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(filepath.Separator))
}
