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

// Previous returns the program of the latest release, which is built from its commit. It skips the
// test, and says why, where the commit or the modules of the release are missing.
func Previous(t testing.TB) string {
	t.Helper()
	if !speed.IsLong() {
		t.Fatal("the program of the latest release is for long tests: call speed.Long first")
	}
	path, err := previous()
	skipIfMissing(t, err)
	return path
}

// skipIfMissing ends the test when a program could not be built.
func skipIfMissing(t testing.TB, err error) {
	t.Helper()
	if missing := missingError(""); errors.As(err, &missing) {
		t.Skip(missing)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// missingError says what is missing to build a program that is not of this checkout.
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
	// With the flags of the tests, Go takes the packages of modules that it built for them.
	return in("go", "build", tags, "-buildvcs=false", "-ldflags=-s -w", "-o", built, pkg)
}

var releaseHeading = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)(?: \(\d{4}-\d\d-\d\d\))?$`)

// released returns the commit of the latest release in the changelog: that of its tag, or the one that
// brought its heading.
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
	// The first commit of a shallow clone seems to bring all headings.
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
