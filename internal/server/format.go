package server

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/auth"
)

// format is the version of the data directory's layout.
const format = "gatehouse data directory, format 1"

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
