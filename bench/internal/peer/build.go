package peer

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"

	"golang.org/x/mod/modfile"
)

// Binaries are the paths of the programs.
type Binaries struct {
	KubeAPIServer, Gatehouse, Etcd, Webhook string
}

// Dir returns the default directory of the programs, which is used if no flag names one.
func Dir() (string, error) { return directory("") }

// directory returns the path of a directory for programs; an empty dir means Dir.
func directory(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "gatehouse-bench"), nil
}

// withoutPlugins excludes Go plugins from the kustomize in kubectl, as in releases.
const withoutPlugins = "kustomize_disable_go_plugin_support"

// Build builds the programs into dir with low priority. kube-apiserver, which takes minutes, and etcd are built only
// if they are missing or have another version than go.mod requires. module is the directory of this module. If
// GATEHOUSE_BINARY is set, Build uses it as gatehouse and does not build gatehouse.
func Build(ctx context.Context, module, dir string) (Binaries, error) {
	module, err := filepath.Abs(module)
	if err != nil {
		return Binaries{}, err
	}
	if dir, err = directory(dir); err != nil {
		return Binaries{}, err
	}
	b := Binaries{
		KubeAPIServer: filepath.Join(dir, "kube-apiserver"),
		Gatehouse:     filepath.Join(dir, "gatehouse"),
		Etcd:          filepath.Join(dir, "etcd"),
		Webhook:       filepath.Join(dir, "webhook"),
	}
	programs := []program{
		{b.KubeAPIServer, module, "./cmd/kube-apiserver", own().stamp(), kubernetesModule},
		{b.Etcd, module, "./cmd/etcd", "", etcdModule},
		{b.Webhook, module, "./cmd/webhook", "", ""},
	}
	if given := os.Getenv("GATEHOUSE_BINARY"); given != "" {
		b.Gatehouse = given
	} else {
		programs = append(programs, program{b.Gatehouse, filepath.Dir(module), "./cmd/gatehouse", "", ""})
	}
	if err := buildAll(ctx, programs); err != nil {
		return Binaries{}, err
	}
	return b, nil
}

// Programs that take minutes to build are kept while they contain the required version of these modules.
const (
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// program is a program to build, from a package in a directory, which is the root of a module. If keep names a
// dependency of the module, an existing program with the required version of the dependency is kept.
type program struct {
	path, in, pkg, flags string
	keep                 string
}

func buildAll(ctx context.Context, programs []program) error {
	for _, p := range programs {
		if p.keep != "" {
			version, err := required(p.in, p.keep)
			if err != nil {
				return err
			}
			if keep, err := contains(p.path, p.keep, version); err != nil {
				return err
			} else if keep {
				continue
			}
		}
		if err := build(ctx, p.in, p.pkg, p.path, p.flags); err != nil {
			return err
		}
	}
	return nil
}

// required returns the version of a dependency that the go.mod in a directory requires.
func required(dir, dependency string) (string, error) {
	path := filepath.Join(dir, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file, err := modfile.ParseLax(path, text, nil)
	if err != nil {
		return "", err
	}
	for _, r := range file.Require {
		if r.Mod.Path == dependency {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", path, dependency)
}

// contains reports whether the program at a path exists and was built with a version of a dependency.
func contains(path, dependency, version string) (bool, error) {
	info, err := buildinfo.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return has(info, dependency, version), nil
}

func has(info *debug.BuildInfo, dependency, version string) bool {
	// A program of the dependency itself, such as kube-controller-manager, has it as its main module.
	return slices.ContainsFunc(append(info.Deps, &info.Main), func(m *debug.Module) bool { return m.Path == dependency && m.Version == version })
}

// Assets are directories of programs for envtest: kube-apiserver and etcd.
type Assets struct {
	Real, Gatehouse string
}

// BuildAssets builds the programs that envtest starts into directories below dir. As in Build, the real ones are kept
// while they have the required version.
func BuildAssets(ctx context.Context, module, dir string) (Assets, error) {
	module, err := filepath.Abs(module)
	if err != nil {
		return Assets{}, err
	}
	if dir, err = directory(dir); err != nil {
		return Assets{}, err
	}
	a := Assets{Real: filepath.Join(dir, "envtest", "real"), Gatehouse: filepath.Join(dir, "envtest", "gatehouse")}
	if err := os.MkdirAll(a.Real, 0o755); err != nil {
		return Assets{}, err
	}
	server, gatehouse := filepath.Join(dir, "kube-apiserver"), filepath.Join(dir, "gatehouse")
	err = buildAll(ctx, []program{
		{server, module, "./cmd/kube-apiserver", own().stamp(), kubernetesModule},
		{filepath.Join(a.Real, "etcd"), module, "./cmd/etcdmain", "", etcdModule},
		{gatehouse, filepath.Dir(module), "./cmd/gatehouse", "", ""},
	})
	if err != nil {
		return Assets{}, err
	}
	// The other comparisons use the same program.
	if err := os.Symlink(server, filepath.Join(a.Real, "kube-apiserver")); err != nil && !errors.Is(err, fs.ErrExist) {
		return Assets{}, err
	}
	if out, err := exec.CommandContext(ctx, gatehouse, "envtest", "install", a.Gatehouse).CombinedOutput(); err != nil {
		return Assets{}, fmt.Errorf("gatehouse envtest install: %w\n%s", err, out)
	}
	return a, nil
}

// BuildWebhook builds only the webhook program into dir and returns its path.
func BuildWebhook(ctx context.Context, module, dir string) (string, error) {
	path := filepath.Join(dir, "webhook")
	return path, build(ctx, module, "./cmd/webhook", path, "")
}

func build(ctx context.Context, module, pkg, path, ldflags string, flags ...string) error {
	args := slices.Concat([]string{"-n", "15", "go", "build", "-tags", withoutPlugins, "-ldflags", ldflags, "-o", path}, flags, []string{pkg})
	cmd := exec.CommandContext(ctx, "nice", args...)
	cmd.Dir = module
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}
