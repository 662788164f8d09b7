package before

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// gitIn runs git as a user does.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "core.autocrlf=false"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func writeIn(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A policy or webhook is changed if one of its lines differs from the base, if a line was deleted, or if its
// file is new (S24.31).
func TestChangedLines(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	run := func(args ...string) { gitIn(t, dir, args...) }
	write := func(name string, lines ...string) { writeIn(t, dir, name, strings.Join(lines, "\n")+"\n") }
	run("init", "--quiet", "--initial-branch=main")
	write("policies/a ä.yaml", "1", "2", "3", "4", "5", "6")
	write("policies/same.yaml", "1", "2")
	write("policies/ends.yaml", "1", "2")
	write("policies/top.yaml", "1", "2")
	write("elsewhere.yaml", "1")
	run("add", ".")
	run("commit", "--quiet", "-m", "base")
	run("checkout", "--quiet", "-b", "change")
	write("policies/a ä.yaml", "1", "two", "3", "6")
	run("commit", "--quiet", "-am", "change")
	write("elsewhere.yaml", "one")
	write("policies/new.yaml", "1")
	write("policies/ends.yaml", "1\r", "2\r")
	write("policies/top.yaml", "2")
	writeIn(t, outside, "a.yaml", "1\n")
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "policies", "out")), os.Symlink("../elsewhere.yaml", filepath.Join(dir, "policies", "link.yaml"))); err != nil {
		t.Fatal(err)
	}
	write("elsewhere/new.yaml", "1")

	b, err := openBase(t.Context(), filepath.Join(dir, "policies"), "main", gitTime)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, tc := range []struct {
		file        string
		first, last int
		want        bool
	}{
		{"policies/a ä.yaml", 1, 1, false},
		{"policies/a ä.yaml", 1, 2, true},
		{"policies/a ä.yaml", 3, 3, true},
		{"policies/a ä.yaml", 4, 9, false},
		{"policies/same.yaml", 1, 2, false},
		{"policies/new.yaml", 7, 8, true},
		{"policies/ends.yaml", 1, 2, false},
		{"policies/top.yaml", 1, 1, true},
		{"policies/link.yaml", 1, 1, true},
		{"policies/out/a.yaml", 1, 1, false},
		{"elsewhere.yaml", 1, 1, true},
		{"elsewhere/new.yaml", 1, 1, true},
	} {
		if got, err := b.Changed(t.Context(), filepath.Join(dir, tc.file), tc.first, tc.last); err != nil || got != tc.want {
			t.Errorf("lines %d to %d of %s: %t, want %t: %v", tc.first, tc.last, tc.file, got, tc.want, err)
		}
	}
	for _, name := range []string{"--output=x", "none", "main\nmain", ""} {
		if b, err := openBase(t.Context(), dir, name, gitTime); err == nil || !strings.Contains(err.Error(), "--base") {
			b.Close()
			t.Errorf("the base %q: %v", name, err)
		}
	}
}

// The repository of the working directory is found in every form that git creates. A bare repository below it
// is ignored (S24.31).
func TestRepositoriesOfWorkingDirectories(t *testing.T) {
	for name, repository := range map[string]func(t *testing.T, dir string) (work string){
		"SHA-256 and packed": func(t *testing.T, dir string) string {
			gitIn(t, dir, "init", "--quiet", "--initial-branch=main", "--object-format=sha256")
			writeIn(t, dir, "a.yaml", "1\n")
			gitIn(t, dir, "add", ".")
			gitIn(t, dir, "commit", "--quiet", "-m", "base")
			gitIn(t, dir, "gc", "--quiet")
			return dir
		},
		"a worktree, and alternates": func(t *testing.T, dir string) string {
			origin, clone, work := filepath.Join(dir, "origin"), filepath.Join(dir, "clone"), filepath.Join(dir, "work")
			gitIn(t, dir, "init", "--quiet", "--initial-branch=main", origin)
			writeIn(t, origin, "a.yaml", "1\n")
			gitIn(t, origin, "add", ".")
			gitIn(t, origin, "commit", "--quiet", "-m", "base")
			gitIn(t, dir, "clone", "--quiet", "--shared", "--branch", "main", origin, clone)
			gitIn(t, clone, "worktree", "add", "--quiet", "-b", "change", work)
			return work
		},
		"a bare repository below": func(t *testing.T, dir string) string {
			gitIn(t, dir, "init", "--quiet", "--initial-branch=main")
			writeIn(t, dir, "a.yaml", "1\n")
			gitIn(t, dir, "add", ".")
			gitIn(t, dir, "commit", "--quiet", "-m", "base")
			gitIn(t, dir, "init", "--quiet", "--bare", "--initial-branch=main", filepath.Join(dir, "policies"))
			return filepath.Join(dir, "policies")
		},
	} {
		t.Run(name, func(t *testing.T) {
			work := repository(t, t.TempDir())
			b, err := openBase(t.Context(), work, "main", gitTime)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if changed, err := b.Changed(t.Context(), filepath.Join(b.top, "a.yaml"), 1, 1); changed || err != nil {
				t.Errorf("a file as in the base: %t, %v", changed, err)
			}
			writeIn(t, b.top, "b.yaml", "1\n")
			if changed, err := b.Changed(t.Context(), filepath.Join(b.top, "b.yaml"), 1, 1); !changed || err != nil {
				t.Errorf("a new file: %t, %v", changed, err)
			}
		})
	}
}

// git does not fetch missing objects, and is ended when it blocks on a pipe (S24.31).
func TestBrokenRepositories(t *testing.T) {
	object := func(t *testing.T, dir, name string) string {
		id := gitIn(t, dir, "rev-parse", name)
		return filepath.Join(dir, ".git", "objects", id[:2], id[2:])
	}
	for name, tc := range map[string]struct {
		fault   func(t *testing.T, dir string) error
		timeout time.Duration
		says    string
	}{
		"a promised object": {func(t *testing.T, dir string) error {
			missing := object(t, dir, "main:a.yaml")
			gitIn(t, dir, "config", "remote.origin.url", "ext::touch "+filepath.Join(dir, "started"))
			gitIn(t, dir, "config", "remote.origin.promisor", "true")
			gitIn(t, dir, "config", "extensions.partialClone", "origin")
			gitIn(t, dir, "config", "protocol.ext.allow", "always")
			return os.Remove(missing)
		}, gitTime, "git cat-file"},
		"an object that is a pipe": {func(t *testing.T, dir string) error {
			pipe := object(t, dir, "main:a.yaml")
			return errors.Join(os.Remove(pipe), syscall.Mkfifo(pipe, 0o600))
		}, 2 * time.Second, "it takes more than 2s"},
		"a configuration that is a pipe": {func(_ *testing.T, dir string) error {
			pipe := filepath.Join(dir, ".git", "config")
			return errors.Join(os.Remove(pipe), syscall.Mkfifo(pipe, 0o600))
		}, gitTime, "is a named pipe"},
		"a head that is a pipe": {func(_ *testing.T, dir string) error {
			pipe := filepath.Join(dir, ".git", "HEAD")
			return errors.Join(os.Remove(pipe), syscall.Mkfifo(pipe, 0o600))
		}, gitTime, "is a named pipe"},
		"a file .git of another kind": {func(_ *testing.T, dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, ".git")), os.WriteFile(filepath.Join(dir, ".git"), []byte("x"), 0o600))
		}, gitTime, "neither a directory nor"},
		"no repository": {func(_ *testing.T, dir string) error { return os.RemoveAll(filepath.Join(dir, ".git")) }, gitTime, "is in no Git repository"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			gitIn(t, dir, "init", "--quiet", "--initial-branch=main")
			writeIn(t, dir, "a.yaml", "1\n")
			gitIn(t, dir, "add", ".")
			gitIn(t, dir, "commit", "--quiet", "-m", "base")
			writeIn(t, dir, "a.yaml", "2\n")
			if err := tc.fault(t, dir); err != nil {
				t.Fatal(err)
			}
			b, err := openBase(t.Context(), dir, "main", tc.timeout)
			if err == nil {
				defer b.Close()
				_, err = b.Changed(t.Context(), filepath.Join(dir, "a.yaml"), 1, 1)
			}
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			if _, err := os.Lstat(filepath.Join(dir, "started")); err == nil {
				t.Error("git has started a program of the repository")
			}
		})
	}
}

func TestDifferencesOfTexts(t *testing.T) {
	for _, tc := range []struct {
		before, now string
		want        []span
	}{
		{"abc", "abc", nil},
		{"abc", "axc", []span{{2, 2}}},
		{"abc", "ac", []span{{1, 0}}},
		{"abcd", "abd", []span{{2, 1}}},
		{"abc", "bc", []span{{1, 0}}},
		{"abc", "", []span{{1, 0}}},
		{"", "ab", []span{{1, 2}}},
		{"abcdef", "xbcyf", []span{{1, 1}, {4, 4}}},
	} {
		if got := changedLines(textOf(strings.Split(tc.before, "")), textOf(strings.Split(tc.now, ""))); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s to %s: %v, want %v", tc.before, tc.now, got, tc.want)
		}
	}
	// The lines outside of all spans are a common subsequence of both texts, and the longest one if no line is in a text
	// twice.
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 1))
		distinct := seed%2 == 0
		text := func() []string {
			lines := make([]string, r.IntN(12))
			numbers := r.Perm(12)
			for i := range lines {
				if lines[i] = fmt.Sprint(r.IntN(3)); distinct {
					lines[i] = fmt.Sprint(numbers[i])
				}
			}
			return lines
		}
		before, now := text(), text()
		spans := changedLines(textOf(before), textOf(now))
		var kept []string
		for i, line := range now {
			if !slices.ContainsFunc(spans, func(s span) bool { return s.first <= i+1 && i+1 <= s.last }) {
				kept = append(kept, line)
			}
		}
		rest := before
		for _, line := range kept {
			i := slices.Index(rest, line)
			if i < 0 {
				t.Fatalf("%v to %v: %v keeps %v", before, now, spans, kept)
			}
			rest = rest[i+1:]
		}
		if most := longest(before, now); distinct && len(kept) != most {
			t.Fatalf("%v to %v: %v keeps %d lines of %d", before, now, spans, len(kept), most)
		}
		if (len(spans) > 0) == slices.Equal(before, now) {
			t.Fatalf("%v to %v: %v", before, now, spans)
		}
	}
	// The end of a text without a line break is a line, too.
	if got, want := changedLines([]byte("a\nb"), []byte("a\nc")), []span{{2, 2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// textOf returns a text with these lines.
func textOf(lines []string) []byte {
	var text []byte
	for _, line := range lines {
		text = append(text, line+"\n"...)
	}
	return text
}

// longest is the length of the longest common subsequence.
func longest(a, b []string) int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
		for j := 1; i > 0 && j <= len(b); j++ {
			table[i][j] = max(table[i-1][j], table[i][j-1])
			if a[i-1] == b[j-1] {
				table[i][j] = table[i-1][j-1] + 1
			}
		}
	}
	return table[len(a)][len(b)]
}
