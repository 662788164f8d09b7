package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// platform is an operating system and an architecture, by Go's names.
type platform struct{ OS, Arch string }

func parsePlatform(text string) (platform, error) {
	os, arch, ok := strings.Cut(text, "/")
	if !ok || os == "" || arch == "" {
		return platform{}, fmt.Errorf("%q is not of the form OS/ARCH", text)
	}
	return platform{os, arch}, nil
}

func (p platform) String() string { return p.OS + "/" + p.Arch }

// kubernetesModule is the module whose version is the Kubernetes release.
const kubernetesModule = "k8s.io/kubernetes"

// The programs of a release: the whole one, and the agent without an API server.
const (
	gatehouse = "gatehouse"
	agent     = "gatehouse-agent"
)

// program is a program, built for a platform.
type program struct {
	platform
	name, path string
	info       *debug.BuildInfo
	// version is the version of the module, commit the revision, made the time of the commit, and modified
	// whether the work tree had changes.
	version, commit string
	made            time.Time
	modified        bool
	// kubernetes is the built-in Kubernetes release, such as v1.37.2.
	kubernetes string
}

// checkTree checks before the builds, which take minutes, that Go will embed the commit into the program.
func (o *options) checkTree(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = o.module
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	top, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return fmt.Errorf("git rev-parse: %w: the program does not know its commit: build it in a git work tree", err)
	}
	// Go does not recognise a repository if .git is a file.
	if info, err := os.Stat(filepath.Join(top, ".git")); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is a submodule or was made by git worktree, where Go finds no commit: build in a clone", top)
	}
	changes, err := git("status", "--porcelain")
	if err != nil {
		return fmt.Errorf("git status: %w", err)
	}
	if changes != "" && !o.modified {
		return errModified
	}
	return nil
}

// errModified is the error of a work tree with changes: no one else could reproduce its build.
var errModified = errors.New("the work tree has changes: commit them, or use -modified")

// linkerFlags omit the data for debuggers.
const linkerFlags = "-s -w"

// profile is a CPU profile of servers under load for the compiler: releases use 7 % less CPU with it
// (bench/results/benchmarks.md). The other builds do not use it, because with it every package is compiled
// again, which takes minutes. Program bench/cmd/releaseprofile writes it.
const profile = "internal/release/server.pgo"

// tags are the build tags of the tests, so that the released program equals the tested program.
const tags = "kustomize_disable_go_plugin_support"

// build builds a program in dir for a platform: static, and without paths of this machine.
func (o *options) build(ctx context.Context, dir, name string, p platform) (*program, error) {
	guide, err := filepath.Abs(filepath.Join(o.module, profile))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-pgo="+guide, "-trimpath", "-buildvcs=true", "-tags="+tags, "-ldflags="+linkerFlags, "-o", path, "./cmd/"+name)
	cmd.Dir = o.module
	// Settings of this machine must not affect the program.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch, "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=", "GOARM64=", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, text)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return describe(name, path, p, info)
}

// describe reads the build information that the toolchain embedded in a program.
func describe(name, path string, p platform, info *debug.BuildInfo) (*program, error) {
	b := &program{platform: p, name: name, path: path, info: info, version: info.Main.Version}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.commit = s.Value
		case "vcs.modified":
			b.modified = s.Value == "true"
		case "vcs.time":
			made, err := time.Parse(time.RFC3339, s.Value)
			if err != nil {
				return nil, fmt.Errorf("%s: vcs.time: %w", filepath.Base(path), err)
			}
			b.made = made.UTC()
		}
	}
	if b.commit == "" || b.made.IsZero() {
		return nil, fmt.Errorf("the program does not know its commit: build it in a git work tree")
	}
	for _, m := range info.Deps {
		if m.Path == kubernetesModule {
			b.kubernetes = m.Version
		}
	}
	if b.kubernetes == "" {
		return nil, fmt.Errorf("the program does not depend on %s", kubernetesModule)
	}
	return b, nil
}
