package serving

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// NewEnvtest returns the command gatehouse envtest.
func NewEnvtest(streams command.Streams) *cobra.Command {
	var as command.Release
	cmd := &cobra.Command{
		Use:   "envtest",
		Short: "Replace the programs that envtest starts",
	}
	command.Group(cmd,
		&cobra.Command{
			Use:   "install DIR",
			Short: "Put kube-apiserver, etcd and kubectl into a folder",
			Args:  oneDirectory,
			RunE: func(_ *cobra.Command, args []string) error {
				if err := installPrograms(args[0], &as); err != nil {
					return err
				}
				terminal.Fprintf(streams.Out, "%s has kube-apiserver, etcd and kubectl now; set KUBEBUILDER_ASSETS to it\n", args[0])
				return nil
			},
		},
		&cobra.Command{
			Use:   "path",
			Short: "Print a folder with the programs, for KUBEBUILDER_ASSETS",
			Args:  command.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				dir, err := cachedPrograms(&as)
				if err != nil {
					return err
				}
				terminal.Fprintf(streams.Out, "%s\n", dir)
				return nil
			},
		},
	)
	for _, c := range cmd.Commands() {
		as.AddFlag(c.Flags(), "this program's")
	}
	return cmd
}

func oneDirectory(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return command.Usagef("name one directory, such as ./bin")
	}
	return nil
}

// cachedPrograms returns a folder in the user's cache with the programs of this build. Each location of the
// gatehouse binary has its own folder for each release.
func cachedPrograms(as *command.Release) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("your cache: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	place := sha256.Sum256([]byte(self))
	name := fmt.Sprintf("%x", place[:8])
	if release, err := as.Named(); err != nil {
		return "", err
	} else if release != "" {
		name += "-" + release
	}
	dir := filepath.Join(cache, "gatehouse", "envtest", name)
	return dir, installPrograms(dir, as)
}

// installPrograms installs this program in a directory under the names that it supports. A process that starts
// one of them meanwhile gets the old program or the new one. With a release, the programs emulate that release.
func installPrograms(dir string, as *command.Release) error {
	release, err := as.Named()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	first := filepath.Join(dir, program.KubeAPIServer)
	if err := installFile(self, first); err != nil {
		return fmt.Errorf("installing %s: %w", first, err)
	}
	for _, name := range []string{program.Etcd, program.Kubectl} {
		link := filepath.Join(dir, name)
		if target, err := os.Readlink(link); err == nil && target == program.KubeAPIServer {
			continue
		}
		if err := replace(link, func(temporary string) error { return os.Symlink(program.KubeAPIServer, temporary) }); err != nil {
			return fmt.Errorf("installing %s: %w", link, err)
		}
	}
	file := filepath.Join(dir, releaseFile)
	if release == "" {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return replace(file, func(temporary string) error { return os.WriteFile(temporary, []byte(release+"\n"), 0o644) })
}

// releaseFile is a file next to the programs with the Kubernetes release that they emulate.
const releaseFile = "kubernetes-version"

// versionedFolder matches the folders of setup-envtest and of libraries with the same layout.
var versionedFolder = regexp.MustCompile(`^v?(1\.[0-9]{1,3}\.[0-9]{1,3})-[a-z]+-[a-z0-9]+$`)

// releaseOfFolder returns the release that the programs in a folder emulate (S26.11): the content of
// releaseFile, or the release in the folder's name in the store of setup-envtest. It is empty for the release
// of the program. known is false for a release that cannot be emulated.
func releaseOfFolder(dir string) (release string, known bool, err error) {
	data, err := files.Read(filepath.Join(dir, releaseFile), maxReleaseFile)
	if err == nil {
		release, known, err = emulation.Nearest(strings.TrimSpace(string(data)))
		if err != nil {
			err = fmt.Errorf("%s: %w", filepath.Join(dir, releaseFile), err)
		}
		return release, known, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	dir, err = filepath.Abs(dir)
	if m := versionedFolder.FindStringSubmatch(filepath.Base(dir)); err == nil && m != nil {
		return emulation.Nearest(m[1])
	}
	return "", true, err
}

// maxReleaseFile is the largest size of releaseFile, in bytes.
const maxReleaseFile = 1 << 10

// installFile installs a file under another path: by a link, or by a copy where a link is impossible.
func installFile(from, to string) error {
	source, err := os.Stat(from)
	if err != nil {
		return err
	}
	switch there, err := os.Lstat(to); {
	case err == nil && (os.SameFile(source, there) || there.Mode().IsRegular() && there.Size() == source.Size() && there.ModTime().Equal(source.ModTime())):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return replace(to, func(temporary string) error {
		if os.Link(from, temporary) == nil {
			return nil
		}
		return copyFile(from, temporary, source)
	})
}

// replace atomically replaces a file by the file that create writes.
func replace(path string, create func(temporary string) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".install-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	temporary := filepath.Join(dir, filepath.Base(path))
	if err := create(temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func copyFile(from, to string, info fs.FileInfo) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	// The time distinguishes copies of different builds.
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}
