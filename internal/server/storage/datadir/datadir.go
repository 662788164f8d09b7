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

// format is the version of the data directory's layout.
const format = "gatehouse data directory, format 1"

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
	path := filepath.Join(dir, "FORMAT")
	data, err := files.Read(path, files.Configuration)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return to.Write(path, []byte(format+"\n"), 0o644)
	case err != nil:
		return fmt.Errorf("--data-dir: %w", err)
	}
	if found := strings.TrimSpace(string(data)); found != format {
		return fmt.Errorf("--data-dir %s was written by another version (%q, this one needs %q); use that version, or another directory", dir, found, format)
	}
	return nil
}
