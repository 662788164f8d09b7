package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/auth"
)

// Format is the version of the data directory's layout, and of what is stored in it.
const Format = 1

// formatName is the name of the file that has the format.
const formatName = "FORMAT"

// format is what the file says.
var format = fmt.Sprintf("gatehouse data directory, format %d", Format)

// Prepare makes the data directory if there is none, and checks that this version can read it.
// An error names --data-dir.
func Prepare(to auth.Files, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o002 != 0 {
		// The administrator may have given a volume this mode on purpose, so the server only warns.
		klog.Warningf("All users of this machine may write to the data directory %s (mode %#o), and replace the server's keys and data: close it with chmod 700", dir, info.Mode().Perm())
	}
	return checkFormat(to, dir)
}

// checkFormat refuses a data directory that this version cannot read, and marks
// a new one. Nothing in a directory of another format is touched.
func checkFormat(to auth.Files, dir string) error {
	err := Check(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Mark(to, dir)
	}
	return err
}

// Check refuses a data directory that this version cannot read. The error wraps fs.ErrNotExist
// when the directory does not say what it is.
func Check(dir string) error {
	found, err := read(dir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if found != format {
		return fmt.Errorf("--data-dir %s was written by another version (%q, this one needs %q); use that version, or another directory", dir, found, format)
	}
	return nil
}

// read returns what the file of a data directory says.
func read(dir string) (string, error) {
	data, err := files.Read(filepath.Join(dir, formatName), files.Configuration)
	return strings.TrimSpace(string(data)), err
}

// Mark says that a data directory has the format of this version.
func Mark(to auth.Files, dir string) error {
	return to.Write(filepath.Join(dir, formatName), []byte(format+"\n"), 0o644)
}

// restoring is what stands in the file between the format and the directory for the replaced
// data, while restored data are moved into place. No version of the server serves that.
const restoring = ", being restored: 'gatehouse backup restore' or the next start completes it; the replaced data go to "

// MarkRestoring says that restored data are being moved into place, and where the data that were
// there go. No server serves the directory until Mark is called.
func MarkRestoring(to auth.Files, dir, replaced string) error {
	return to.Write(filepath.Join(dir, formatName), []byte(format+restoring+replaced+"\n"), 0o644)
}

// Restoring returns where replaced data go while restored data are being moved into place; empty
// when they are not.
func Restoring(dir string) (replaced string, err error) {
	found, err := read(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	_, replaced, _ = strings.Cut(found, restoring)
	return replaced, nil
}
