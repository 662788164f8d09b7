package peer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Binaries are the paths of the programs.
type Binaries struct {
	KubeAPIServer, Gatehouse, Etcd, Webhook string
}

// Dir returns the directory that programs are kept in when no flag names one.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "gatehouse-bench"), nil
}

// stamp makes kube-apiserver say which version it is, as a release does.
const stamp = "-X k8s.io/component-base/version.gitVersion=v1.37.1 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"

// Build builds the programs into dir with low priority. kube-apiserver, which
// takes minutes, and etcd are built only when they are missing: delete them
// after a change of versions. module is the directory of this module.
func Build(ctx context.Context, module, dir string) (Binaries, error) {
	module, err := filepath.Abs(module)
	if err != nil {
		return Binaries{}, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Binaries{}, err
	}
	b := Binaries{
		KubeAPIServer: filepath.Join(dir, "kube-apiserver"),
		Gatehouse:     filepath.Join(dir, "gatehouse"),
		Etcd:          filepath.Join(dir, "etcd"),
		Webhook:       filepath.Join(dir, "webhook"),
	}
	for _, program := range []struct {
		path, in, pkg, flags string
		keep                 bool
	}{
		{b.KubeAPIServer, module, "./cmd/kube-apiserver", stamp, true},
		{b.Etcd, module, "./cmd/etcd", "", true},
		{b.Webhook, module, "./cmd/webhook", "", false},
		{b.Gatehouse, filepath.Dir(module), "./cmd/gatehouse", "", false},
	} {
		if _, err := os.Stat(program.path); program.keep && err == nil {
			continue
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Binaries{}, err
		}
		if err := build(ctx, program.in, program.pkg, program.path, program.flags); err != nil {
			return Binaries{}, err
		}
	}
	return b, nil
}

// BuildWebhook builds the webhook program alone into dir and returns its path.
func BuildWebhook(ctx context.Context, module, dir string) (string, error) {
	path := filepath.Join(dir, "webhook")
	return path, build(ctx, module, "./cmd/webhook", path, "")
}

func build(ctx context.Context, module, pkg, path, ldflags string) error {
	cmd := exec.CommandContext(ctx, "nice", "-n", "15", "go", "build", "-ldflags", ldflags, "-o", path, pkg)
	cmd.Dir = module
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}
