package kubectl

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// fileFlags are kubectl's flags for files.
var fileFlags = []string{"filename", "from-file", "from-env-file", "patch-file", "cert", "key"}

// checkFiles makes kubectl refuse named pipes, devices, and links out of a directory before it reads files. In
// the directory of another user, kubectl could otherwise block forever on a pipe or print the user's own files.
// Open pipes of a shell are allowed.
func checkFiles(root *cobra.Command) {
	before := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		var err error
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if err != nil || !slices.Contains(fileFlags, f.Name) {
				return
			}
			values := []string{f.Value.String()}
			if list, ok := f.Value.(pflag.SliceValue); ok {
				values = list.GetSlice()
			}
			for _, value := range values {
				if f.Name == "from-file" {
					// The value may begin with the name of the key.
					if _, file, named := strings.Cut(value, "="); named {
						value = file
					}
				}
				if err = checkFile(value); err != nil {
					return
				}
			}
		})
		if err != nil {
			return err
		}
		return before(cmd, args)
	}
}

// checkFile returns an error if a path must not be read: a file, a directory or a pattern. kubectl itself
// reports missing files.
func checkFile(path string) error {
	matches, err := filepath.Glob(path)
	if err != nil || len(matches) == 0 {
		return nil
	}
	for _, match := range matches {
		err := filepath.WalkDir(match, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil || entry.IsDir():
				return nil
			case name != match && !slices.Contains(resource.FileExtensions, filepath.Ext(name)):
				return nil
			}
			if err = files.CheckArgument(name, math.MaxInt64); err == nil && name != match {
				err = files.CheckFound(name, match)
			}
			if errors.As(err, new(files.Refused)) {
				return files.Plain(err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
