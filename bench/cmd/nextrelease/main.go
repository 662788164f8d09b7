// Command nextrelease compiles and tests a copy of the tree with another version of the Kubernetes modules, and reports
// the necessary changes:
//
//	.ci/run next 1.37.2
//
// The modules of Kubernetes get the version; a module that does not exist in it is dropped. The patches of
// internal/release/next/VERSION are applied first. The report has compile errors, functions of upstream that changed and
// that this tree follows (decision 009), failures in tests of release tables, and failures in other tests. With a newer
// version all tests run, with an older one the short tests. The command exits with 1 if there is something to change, and
// with 2 if it cannot tell.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// tables are the packages with tests of differences between releases: versions of kinds, fields, feature gates, flags.
var tables = []string{"./internal/kit/emulation/...", "./test/catalogtest/...", "./internal/server/api/catalog/...", "./internal/commands/cli/serving"}

// shown bounds the lines of each part of the report.
const shown = 200

func main() {
	keep := flag.Bool("keep", false, "keep the copy of the tree, and print its directory")
	only := flag.String("only", "", "`part` of the report to make: build, or all by default")
	flag.Parse()
	if flag.NArg() != 1 || !semver.IsValid("v"+flag.Arg(0)) {
		fmt.Fprintln(os.Stderr, "usage: nextrelease [-keep] [-only build] VERSION, such as 1.38.0-beta.0")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	changes, err := run(ctx, flag.Arg(0), *keep, *only == "build")
	if err != nil {
		fmt.Fprintf(os.Stderr, "nextrelease: %v\n", err)
		os.Exit(2)
	}
	if changes {
		os.Exit(1)
	}
}

// lane is a copy of the tree with other modules.
type lane struct {
	dir     string
	version string
	// newer reports whether version is newer than the release of the tree.
	newer bool
	found bool
}

func run(ctx context.Context, version string, keep, buildOnly bool) (changes bool, err error) {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return false, err
	}
	root = strings.TrimSpace(root)
	dir, err := os.MkdirTemp("", "nextrelease-")
	if err != nil {
		return false, err
	}
	if keep {
		fmt.Println("the copy of the tree is in", dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if err := copyTree(ctx, root, dir); err != nil {
		return false, err
	}
	l := &lane{dir: dir, version: version}
	if err := l.patch(ctx, filepath.Join(root, "internal", "release", "next", version)); err != nil {
		return false, err
	}
	for _, module := range []string{".", "bench"} {
		if err := l.modules(ctx, module); err != nil {
			return false, err
		}
	}
	built := l.compile(ctx)
	if buildOnly || ctx.Err() != nil {
		return l.found, ctx.Err()
	}
	l.test(ctx, "followed functions that changed", "-run", "TestFollowedCodeIsUnchanged", "./internal/house")
	if !built {
		fmt.Println("\n## Tests\n\nleft out: the tree does not compile")
		return l.found, ctx.Err()
	}
	l.test(ctx, "tests of release tables", tables...)
	rest := []string{"-timeout", "60m", "./..."}
	if !l.newer {
		rest = append([]string{"-short"}, rest...)
	}
	l.test(ctx, "other tests", rest...)
	if !l.newer {
		l.report("agreement with kube-apiserver", lines(l.goes(ctx, "bench", "run", "./differential")))
	}
	return l.found, ctx.Err()
}

// copyTree copies the files that git knows, as they are on disk, and makes dir a repository with them: tests of the house
// ask git.
func copyTree(ctx context.Context, root, dir string) error {
	list, err := output(ctx, root, "git", "ls-files", "-z")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		info, err := os.Lstat(from)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file", name)
		}
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, info.Mode())); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=next", "-c", "user.email=next@localhost", "commit", "-q", "-m", "go.mod: try another release"}} {
		if _, err := output(ctx, dir, "git", args...); err != nil {
			return err
		}
	}
	return nil
}

// patch applies the patches of a version in the order of their names.
func (l *lane) patch(ctx context.Context, from string) error {
	patches, err := filepath.Glob(filepath.Join(from, "*.patch"))
	if err != nil {
		return err
	}
	count := 0
	for _, file := range patches {
		if _, err := output(ctx, l.dir, "git", "apply", file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		count += bytes.Count(content, []byte("\n"))
	}
	fmt.Printf("patches: %d, of %d lines\n", len(patches), count)
	return nil
}

// modules sets the versions of the Kubernetes modules in the go.mod of a folder. Kubernetes 1.N.P has the module
// k8s.io/kubernetes v1.N.P, and k8s.io/NAME v0.N.P of each library.
func (l *lane) modules(ctx context.Context, module string) error {
	dir := filepath.Join(l.dir, module)
	text, err := output(ctx, dir, "go", "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal([]byte(text), &mod); err != nil {
		return err
	}
	own := slices.IndexFunc(mod.Require, func(r struct{ Path, Version string }) bool { return r.Path == "k8s.io/kubernetes" })
	if own < 0 {
		return errors.New("go.mod does not require k8s.io/kubernetes")
	}
	release := mod.Require[own].Version
	libraries := "v0" + strings.TrimPrefix(release, "v1")
	l.newer = semver.Compare("v"+l.version, release) >= 0
	args := []string{"mod", "edit"}
	var dropped []string
	wanted := map[string]string{}
	for _, r := range mod.Require {
		to := "v" + l.version
		switch r.Version {
		case release:
		case libraries:
			to = "v0" + strings.TrimPrefix(to, "v1")
		default:
			continue
		}
		if _, err := output(ctx, dir, "go", "list", "-m", r.Path+"@"+to); err != nil {
			if r.Path == "k8s.io/kubernetes" {
				return fmt.Errorf("there is no Kubernetes %s: %w", l.version, err)
			}
			args, dropped = append(args, "-droprequire="+r.Path), append(dropped, r.Path)
			continue
		}
		args = append(args, "-require="+r.Path+"@"+to)
		if !l.newer {
			// A module that requires a later version would win.
			args = append(args, "-replace="+r.Path+"="+r.Path+"@"+to)
		}
		wanted[r.Path] = to
	}
	language, err := l.language(ctx, dir)
	if err != nil {
		return err
	}
	if l.newer {
		args = append(args, "-go="+language)
	}
	if _, err := output(ctx, dir, "go", args...); err != nil {
		return err
	}
	fmt.Printf("module %s: from Kubernetes %s to %s; without the modules %v\n", module, strings.TrimPrefix(release, "v"), l.version, dropped)
	all, err := output(ctx, dir, "go", "list", "-mod=mod", "-m", "all")
	if err != nil {
		return fmt.Errorf("Kubernetes %s needs modules that cannot be had: %w", l.version, err)
	}
	for _, line := range lines(all) {
		name, chosen, _ := strings.Cut(line, " ")
		if to := wanted[name]; to != "" && !strings.HasSuffix(chosen, to) {
			fmt.Printf("%s is %s and not %s: another module requires it\n", name, chosen, to)
		}
	}
	// A package that does not exist in the version is a compile error, and no reason to stop here.
	if out, err := output(ctx, dir, "go", "mod", "tidy", "-e"); err != nil {
		return fmt.Errorf("go mod tidy: %w\n%s", err, out)
	}
	return nil
}

// language returns the version of Go that Kubernetes needs.
func (l *lane) language(ctx context.Context, dir string) (string, error) {
	text, err := output(ctx, dir, "go", "mod", "download", "-json", "k8s.io/kubernetes@v"+l.version)
	if err != nil {
		return "", err
	}
	var module struct{ GoMod string }
	if err := json.Unmarshal([]byte(text), &module); err != nil {
		return "", err
	}
	content, err := os.ReadFile(module.GoMod)
	if err != nil {
		return "", err
	}
	file, err := modfile.ParseLax(module.GoMod, content, nil)
	if err != nil {
		return "", err
	}
	if file.Go == nil {
		return "", fmt.Errorf("%s has no line go", module.GoMod)
	}
	return file.Go.Version, nil
}

var (
	compileError = regexp.MustCompile(`^(?:vet: )?(\S+\.go):\d+(?::\d+)?: (.+)$`)
	failedTest   = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	failed       = regexp.MustCompile(`^FAIL\s+(\S+)`)
	inTest       = regexp.MustCompile(`^\s+(\S+_test\.go:\d+: .+)$`)
)

// compile reports the compile errors of packages and their tests, and whether there are none.
func (l *lane) compile(ctx context.Context) bool {
	list := l.goes(ctx, ".", "list", "-e", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,CgoFiles,ImportMap,Module,Error", "./...")
	all, err := typeErrors(strings.NewReader(list))
	if err != nil {
		all = append(all, err.Error())
	}
	for i, line := range all {
		all[i] = strings.TrimPrefix(line, l.dir+"/")
	}
	slices.Sort(all)
	// A package and the same package with its tests have the same errors.
	all = slices.Compact(all)
	l.report("compile errors", all)
	files := map[string]bool{}
	for _, text := range all {
		first, _, _ := strings.Cut(text, "\n")
		if m := compileError.FindStringSubmatch(first); m != nil {
			files[path.Clean(m[1])] = true
		}
	}
	fmt.Printf("%d errors in %d files\n", len(all), len(files))
	return len(all) == 0
}

// test runs tests and reports the failures.
func (l *lane) test(ctx context.Context, title string, args ...string) {
	if ctx.Err() != nil {
		return
	}
	var all []string
	for _, line := range lines(l.goes(ctx, ".", append([]string{"test", "-count=1"}, args...)...)) {
		if failedTest.MatchString(line) || failed.MatchString(line) || inTest.MatchString(line) || compileError.MatchString(line) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	l.report(title, all)
}

func (l *lane) report(title string, found []string) {
	fmt.Printf("\n## %s: %d lines\n\n", title, len(found))
	for _, line := range found[:min(len(found), shown)] {
		fmt.Println(strings.ReplaceAll(line, l.dir+"/", ""))
	}
	if len(found) > shown {
		fmt.Printf("... and %d more\n", len(found)-shown)
	}
	l.found = l.found || len(found) > 0
}

// goes runs a go command below the copy and returns its output. The toolchain follows go.mod. An exit code other
// than 0 comes with lines that say why.
func (l *lane) goes(ctx context.Context, dir string, args ...string) string {
	out, err := output(ctx, filepath.Join(l.dir, dir), "go", args...)
	if err != nil {
		out += "\n" + err.Error() + "\n"
	}
	return out
}

func lines(text string) (all []string) {
	for s := bufio.NewScanner(io.LimitReader(strings.NewReader(text), 64<<20)); s.Scan(); {
		if line := s.Text(); strings.TrimSpace(line) != "" {
			all = append(all, line)
		}
	}
	return all
}

// output runs a command and returns its standard output. The error has its standard error.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=auto")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), err
}
