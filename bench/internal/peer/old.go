package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// OldRelease is the release of the module kube135, and OldMinor its minor release.
const OldRelease, OldMinor = "v1.35.4", "1.35"

// BuildOld builds the real kube-apiserver of an older release into dir if it is missing, which takes minutes, and
// returns its path. module is the directory of the module bench.
func BuildOld(ctx context.Context, module, dir string) (string, error) {
	dir, err := directory(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kube-apiserver-"+OldMinor)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	const stamp = "-s -w -X k8s.io/component-base/version.gitVersion=" + OldRelease + " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35"
	build := exec.CommandContext(ctx, "nice", "go", "build", "-trimpath", "-ldflags="+stamp, "-o", path, ".")
	build.Dir = filepath.Join(module, "kube135")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building kube-apiserver %s: %w\n%s", OldRelease, err, out)
	}
	return path, nil
}
