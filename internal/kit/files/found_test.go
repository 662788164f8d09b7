package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree creates a directory with files. A text that begins with "->" makes a link.
func tree(t *testing.T, content map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range content {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if to, link := strings.CutPrefix(text, "->"); err == nil && link {
			err = os.Symlink(strings.ReplaceAll(to, "DIR", dir), path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A file that no user has named is read in the folders of the user only.
func TestFoundFilesStayInTheFolder(t *testing.T) {
	dir := tree(t, map[string]string{
		"secret":                  "root:x",
		"repo/.git/HEAD":          "",
		"repo/shared.yaml":        "a",
		"repo/policies/own.yaml":  "a",
		"repo/policies/near.yaml": "->../shared.yaml",
		"repo/policies/loop.yaml": "->loop.yaml",
		"repo/policies/out.yaml":  "->../../secret",
		"repo/policies/abs.yaml":  "->DIR/secret",
		"repo/policies/two.yaml":  "->out.yaml",
		"repo/policies/dir":       "->../..",
		"elsewhere/a.yaml":        "a",
		"elsewhere/out.yaml":      "->../secret",
	})
	t.Chdir(filepath.Join(dir, "repo", "policies"))
	elsewhere := filepath.Join(dir, "elsewhere")
	for path, good := range map[string]bool{
		"own.yaml": true, "near.yaml": true, "../shared.yaml": true,
		"out.yaml": false, "abs.yaml": false, "two.yaml": false, "dir/secret": false, "../../secret": false, filepath.Join(dir, "secret"): false,
		filepath.Join(elsewhere, "a.yaml"): true, filepath.Join(elsewhere, "out.yaml"): false,
	} {
		data, err := ReadFound(path, 100, elsewhere)
		if good && (err != nil || string(data) != "a") || !good && !errors.As(err, new(Refused)) {
			t.Errorf("%s: %q, %v", path, data, err)
		}
		if err != nil && strings.Contains(err.Error(), "root:") {
			t.Errorf("%s: the error has the content: %v", path, err)
		}
	}
	if _, err := ReadFound(filepath.Join(elsewhere, "a.yaml"), 100); !errors.As(err, new(Refused)) {
		t.Errorf("a directory that nobody has named: %v", err)
	}
	if _, err := ReadFound("none.yaml", 100); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ReadFound("loop.yaml", 100); err == nil {
		t.Error("a link to itself is read")
	}
}

// The home directory does not count as a shared folder, even if it is a git work tree.
func TestAHomeDirectoryIsNoWorkTree(t *testing.T) {
	dir := tree(t, map[string]string{".git/HEAD": "", ".ssh/key": "k", "src/out.yaml": "->../.ssh/key"})
	t.Setenv("HOME", dir)
	t.Chdir(filepath.Join(dir, "src"))
	if _, err := ReadFound("out.yaml", 100); !errors.As(err, new(Refused)) {
		t.Error(err)
	}
}

// Output that a user has named does not leave the folder through a link of another author.
func TestOutputStaysInTheFolder(t *testing.T) {
	dir := tree(t, map[string]string{
		"victim":          "v",
		"outside/latest":  "->../victim",
		"repo/in.json":    "->kept.json",
		"repo/kept.json":  "k",
		"repo/out.json":   "->../victim",
		"repo/dangling":   "->../new",
		"repo/two.json":   "->out.json",
		"repo/away":       "->..",
		"repo/plain.json": "p",
	})
	t.Chdir(filepath.Join(dir, "repo"))
	for path, good := range map[string]bool{
		"in.json": true, "plain.json": true, "fresh.json": true, os.DevNull: true, "../beside.json": true, "../outside/latest": true,
		"out.json": false, "two.json": false, "dangling": false, "away/new": false,
	} {
		if err := os.WriteFile(filepath.Join(dir, "victim"), []byte("v"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := ReplaceOutput(path, []byte("written"), 0o600)
		if good != (err == nil) || !good && !errors.As(err, new(Refused)) {
			t.Errorf("%s: %v", path, err)
		}
		if data, _ := os.ReadFile(filepath.Join(dir, "victim")); !good && string(data) != "v" {
			t.Errorf("%s: wrote to the file outside", path)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "new")); err == nil {
		t.Error("a file outside was made")
	}
	if data, err := os.ReadFile("kept.json"); err != nil || string(data) != "written" {
		t.Errorf("a link in the folder: %q, %v", data, err)
	}
}
