package peer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
// if they are missing: delete them after a change of versions. module is the directory of this module. If
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
		{b.KubeAPIServer, module, "./cmd/kube-apiserver", own().stamp(), true},
		{b.Etcd, module, "./cmd/etcd", "", true},
		{b.Webhook, module, "./cmd/webhook", "", false},
	}
	if given := os.Getenv("GATEHOUSE_BINARY"); given != "" {
		b.Gatehouse = given
	} else {
		programs = append(programs, program{b.Gatehouse, filepath.Dir(module), "./cmd/gatehouse", "", false})
	}
	if err := buildAll(ctx, programs); err != nil {
		return Binaries{}, err
	}
	return b, nil
}

// program is a program to build, from a package in a directory. If keep is set, it is built only if it is missing.
type program struct {
	path, in, pkg, flags string
	keep                 bool
}

func buildAll(ctx context.Context, programs []program) error {
	for _, p := range programs {
		if _, err := os.Stat(p.path); p.keep && err == nil {
			continue
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := build(ctx, p.in, p.pkg, p.path, p.flags); err != nil {
			return err
		}
	}
	return nil
}

// Assets are directories of programs for envtest: kube-apiserver and etcd.
type Assets struct {
	Real, Gatehouse string
}

// BuildAssets builds the programs that envtest starts into directories below dir. As in Build, the real ones are
// built only if they are missing.
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
		{server, module, "./cmd/kube-apiserver", own().stamp(), true},
		{filepath.Join(a.Real, "etcd"), module, "./cmd/etcdmain", "", true},
		{gatehouse, filepath.Dir(module), "./cmd/gatehouse", "", false},
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
