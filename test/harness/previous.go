package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Previous builds the program of the latest release from its commit and returns its path. It skips the test,
// with the reason, if the commit or the modules of the release are missing.
func Previous(t testing.TB) string {
	t.Helper()
	if !speed.IsLong() {
		t.Fatal("the program of the latest release is for long tests: call speed.Long first")
	}
	path, err := previous()
	skipIfMissing(t, err)
	return path
}

// skipIfMissing skips the test if err is a missingError.
func skipIfMissing(t testing.TB, err error) {
	t.Helper()
	if missing := missingError(""); errors.As(err, &missing) {
		t.Skip(missing)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// missingError names the missing prerequisite of a build from another commit.
type missingError string

func (e missingError) Error() string { return string(e) }

var previous = sync.OnceValues(func() (string, error) {
	commit, err := released()
	if err != nil {
		return "", err
	}
	return cached("gatehouse-released", "gatehouse-released-"+commit[:12], func(built string) error {
		if _, err := os.Stat(built); err == nil {
			return nil
		}
		return buildCommit(commit, built)
	})
})

// buildCommit builds the program of a commit.
func buildCommit(commit, built string) error {
	source, err := os.MkdirTemp("", "gatehouse-released-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(source)
	archive := filepath.Join(source, "source.tar")
	if _, err := run("git", "archive", "--output", archive, commit); err != nil {
		return err
	}
	in := func(name string, args ...string) error {
		cmd := exec.Command(name, args...)
		cmd.Dir = source
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
		return nil
	}
	if err := in("tar", "-xf", archive); err != nil {
		return err
	}
	const tags, pkg = "-tags=kustomize_disable_go_plugin_support", "./cmd/gatehouse"
	if err := in("go", "list", "-deps", tags, pkg); err != nil {
		return missingError(fmt.Sprintf("modules of the latest release are missing: %v", err))
	}
	// With the flags of the tests, Go reuses the module packages that it compiled for them.
	return in("go", "build", tags, "-buildvcs=false", "-ldflags=-s -w", "-o", built, pkg)
}

var releaseHeading = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)(?: \(\d{4}-\d\d-\d\d\))?$`)

// released returns the commit of the latest release in the changelog: the commit of its tag, or else the
// commit that added its heading.
func released() (string, error) {
	text, err := os.ReadFile(filepath.Join(moduleRoot(), "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	latest := releaseHeading.FindStringSubmatch(string(text))
	if latest == nil {
		return "", missingError("CHANGELOG.md has no release")
	}
	tag := "v" + latest[1]
	if commit, err := run("git", "rev-parse", "--verify", "--quiet", tag+"^{commit}"); err == nil {
		return strings.TrimSpace(commit), nil
	}
	// In a shallow clone, the first commit seems to add all headings.
	if shallow, err := run("git", "rev-parse", "--is-shallow-repository"); err != nil || strings.TrimSpace(shallow) != "false" {
		return "", missingError(fmt.Sprintf("the latest release has no tag %s here, and its commit is not known without the whole history", tag))
	}
	commits, err := run("git", "log", "--reverse", "--format=%H", "-S\n"+latest[0]+"\n", "--", "CHANGELOG.md")
	first, _, _ := strings.Cut(commits, "\n")
	if err != nil || first == "" {
		return "", missingError(fmt.Sprintf("no commit brings the heading %q to CHANGELOG.md", latest[0]))
	}
	return first, nil
}
