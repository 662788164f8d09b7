package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// Release is a minor release of Kubernetes with its newest patch release, such as 1.36 and v1.36.3.
type Release struct{ Minor, Version string }

// Releases are the releases that are compared, the oldest first. The last one is the release of the modules in go.mod.
var Releases = []Release{{"1.34", "v1.34.4"}, {"1.35", "v1.35.4"}, {"1.36", "v1.36.3"}, {"1.37", "v1.37.2"}}

// Libraries returns the version of k8s.io/api and of the other libraries of the release.
func (r Release) Libraries() string { return "v0" + strings.TrimPrefix(r.Version, "v1") }

// stamp returns the linker flags that set the version of kube-apiserver.
func (r Release) stamp() string {
	const at = "-X k8s.io/component-base/version."
	return at + "gitVersion=" + r.Version + " " + at + "gitMajor=1 " + at + "gitMinor=" + strings.TrimPrefix(r.Minor, "1.")
}

// own is the release of the modules in go.mod.
func own() Release { return Releases[len(Releases)-1] }

// ReleaseOf returns the release of a minor release.
func ReleaseOf(minor string) (Release, error) {
	i := slices.IndexFunc(Releases, func(r Release) bool { return r.Minor == minor })
	if i < 0 {
		return Release{}, fmt.Errorf("there is no kube-apiserver of %q here, only of %v", minor, Releases)
	}
	return Releases[i], nil
}

// BuildRelease builds the real kube-apiserver of a release into dir, which takes minutes, and returns its path. It keeps
// an existing program of the same patch release. module is the directory of the module bench. The program is built from
// a temporary module with the requirements of that release.
func BuildRelease(ctx context.Context, module, dir string, r Release) (path string, err error) {
	if dir, err = directory(dir); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "kube-apiserver-"+r.Minor)
	if r == own() {
		path = filepath.Join(dir, "kube-apiserver")
	}
	if keep, err := contains(path, kubernetesModule, r.Version); err != nil || keep {
		return path, err
	}
	temporary, err := os.MkdirTemp("", "kube-apiserver-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	program, err := os.ReadFile(filepath.Join(module, "cmd", "kube-apiserver", "main.go"))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(temporary, "main.go"), program, 0o600); err != nil {
		return "", err
	}
	if err := r.writeModule(ctx, filepath.Join(temporary, "go.mod")); err != nil {
		return "", fmt.Errorf("go.mod of kube-apiserver %s: %w", r.Version, err)
	}
	if err := build(ctx, temporary, ".", path, "-s -w "+r.stamp(), "-mod=mod", "-trimpath"); err != nil {
		return "", fmt.Errorf("kube-apiserver %s: %w", r.Version, err)
	}
	return path, nil
}

// writeModule writes a go.mod with the requirements of Kubernetes itself. The modules in its folder staging are replaced
// with their published versions.
func (r Release) writeModule(ctx context.Context, path string) error {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", kubernetesModule+"@"+r.Version).Output()
	if err != nil {
		return fmt.Errorf("go mod download: %w\n%s", err, out)
	}
	var module struct{ GoMod string }
	if err := json.Unmarshal(out, &module); err != nil {
		return err
	}
	text, err := os.ReadFile(module.GoMod)
	if err != nil {
		return err
	}
	file, err := modfile.Parse(module.GoMod, text, nil)
	if err != nil {
		return err
	}
	errs := []error{file.AddModuleStmt("example.com/kube-apiserver"), file.AddRequire(kubernetesModule, r.Version)}
	for _, replaced := range slices.Clone(file.Replace) {
		if name := replaced.Old.Path; modfile.IsDirectoryPath(replaced.New.Path) {
			errs = append(errs, file.AddReplace(name, "", name, r.Libraries()))
		}
	}
	for _, tool := range slices.Clone(file.Tool) {
		errs = append(errs, file.DropTool(tool.Path))
	}
	file.Cleanup()
	text, err = file.Format()
	return errors.Join(append(errs, err, os.WriteFile(path, text, 0o600))...)
}
