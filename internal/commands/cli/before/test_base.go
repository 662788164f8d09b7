package before

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
)

const (
	// gitTime limits a call of git: an object of a hostile repository may be a named pipe.
	gitTime = time.Minute
	// maxTree limits the list of the files of a commit, in bytes.
	maxTree = 256 << 20
)

// base is the last common commit of the working tree and a branch.
//
// git reads only objects and references. The configuration of the repository is not used, because it could
// start programs: a file system monitor, filters, or a transport for missing objects. git does not access the
// working tree, its index or submodules; this package compares the files.
type base struct {
	// top is the directory of the working tree.
	top    string
	git    *git
	commit string
	// objects maps the path of each file of the commit, with slashes, to the name of its object.
	objects map[string]string

	mu      sync.Mutex
	changed map[string][]span
}

// span is a range of lines, including both ends. After a deletion without new lines, last is before first.
type span struct{ first, last int }

// openBase opens the repository around a directory. Close releases the base.
func openBase(ctx context.Context, dir, name string, timeout time.Duration) (_ *base, err error) {
	b := &base{changed: map[string][]span{}}
	gitDir := ""
	if b.top, gitDir, err = findRepository(dir); err != nil {
		return nil, err
	}
	if b.git, err = openGit(ctx, gitDir, timeout); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	// A name with several lines would be more than one argument.
	if strings.ContainsAny(name, "\x00\n") {
		return nil, fmt.Errorf("--base %q is not the name of a commit", name)
	}
	found, err := b.git.run(ctx, maxTree, "HEAD^{commit}\n"+name+"^{commit}\n", "cat-file", "--batch-check")
	if err != nil {
		return nil, err
	}
	var commits []string
	for line := range strings.Lines(found) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[1] != "commit" {
			named := "HEAD"
			if len(commits) > 0 {
				named = "--base " + name
			}
			return nil, fmt.Errorf("%s: the repository %s has no such commit: fetch it first, or name another one", named, gitDir)
		}
		commits = append(commits, fields[0])
	}
	if len(commits) != 2 {
		return nil, fmt.Errorf("git cat-file in %s answers %q", gitDir, found)
	}
	common, err := b.git.run(ctx, maxTree, "", "merge-base", commits[0], commits[1])
	if err != nil {
		return nil, fmt.Errorf("HEAD and --base %s have no commit in common, or the clone is too shallow to have it: %w", name, err)
	}
	b.commit = strings.TrimSpace(common)
	tree, err := b.git.run(ctx, maxTree, "", "ls-tree", "-r", "-z", "--full-tree", b.commit)
	if err != nil {
		return nil, err
	}
	b.objects = map[string]string{}
	for entry := range strings.SplitSeq(tree, "\x00") {
		// MODE TYPE OBJECT, a tab, and the path.
		about, path, _ := strings.Cut(entry, "\t")
		if fields := strings.Fields(about); len(fields) == 3 && fields[1] == "blob" {
			b.objects[path] = fields[2]
		}
	}
	return b, nil
}

// Close removes temporary files. The base may be nil.
func (b *base) Close() {
	if b != nil {
		b.git.private.Remove()
	}
}

// contains reports whether a path is in the working tree.
func (b *base) contains(path string) bool {
	_, ok := b.below(path)
	return ok
}

// below returns a path relative to the top of the working tree, with slashes. It resolves links first: the base
// has a file at the target of a link.
func (b *base) below(path string) (string, bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	name, err := filepath.Rel(b.top, path)
	return filepath.ToSlash(name), err == nil && filepath.IsLocal(name)
}

// Changed reports whether any line of a file from first to last differs from the base, or lines in that range
// were deleted. Files outside of the working tree never change. It is safe for concurrent use.
func (b *base) Changed(ctx context.Context, file string, first, last int) (bool, error) {
	name, ok := b.below(file)
	if !ok {
		return false, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	spans, known := b.changed[name]
	if !known {
		var err error
		if spans, err = b.compare(ctx, file, name); err != nil {
			return false, err
		}
		b.changed[name] = spans
	}
	return slices.ContainsFunc(spans, func(s span) bool { return s.first <= last && max(s.first, s.last) >= first }), nil
}

// compare returns the lines of a file that differ from the base.
func (b *base) compare(ctx context.Context, file, name string) ([]span, error) {
	object, known := b.objects[name]
	if !known {
		return []span{{1, math.MaxInt}}, nil
	}
	now, err := files.Read(file, files.Objects)
	if err != nil {
		return nil, err
	}
	now = normalised(now)
	if object == objectOf(now, len(object)) {
		return nil, nil
	}
	before, err := b.git.run(ctx, files.Objects, "", "cat-file", "blob", object)
	if err != nil {
		return nil, fmt.Errorf("%s in the commit %s: %w", name, b.commit, err)
	}
	return changedLines(normalised([]byte(before)), now), nil
}

// normalised replaces the line ends of Windows by the line ends of a repository.
func normalised(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")) }

// objectOf returns the object name of a content: SHA-1 or SHA-256, chosen by the length of the names.
func objectOf(content []byte, length int) string {
	h := sha1.New()
	if length == 2*sha256.Size {
		h = sha256.New()
	}
	h.Write(fmt.Appendf(nil, "blob %d\x00", len(content)))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

// changedLines returns the lines of a new text that an old text does not have, by a diff with the lines that both texts
// have once as anchors. A deletion is an empty span after the line before it, or at the first line.
func changedLines(before, now []byte) []span {
	var spans []span
	// line counts the lines of the new text that were read, and from is line at the begin of a difference.
	line, from, differs := 0, 0, false
	end := func() {
		switch {
		case differs && from == line:
			from = max(1, from)
			spans = append(spans, span{from, from - 1})
		case differs:
			spans = append(spans, span{from + 1, line})
		}
		differs = false
	}
	unified := string(diff.Diff("", before, "", now))
	for text := range strings.Lines(unified[max(0, strings.Index(unified, "@@")):]) {
		switch text[0] {
		case '@':
			end()
			_, place, _ := strings.Cut(text, "+")
			first, _, _ := strings.Cut(place, ",")
			number, _ := strconv.Atoi(first)
			line = max(0, number-1)
		case ' ':
			end()
			line++
		case '+', '-':
			if !differs {
				from, differs = line, true
			}
			if text[0] == '+' {
				line++
			}
		}
	}
	end()
	return spans
}

// findRepository returns the working tree around a directory and its Git directory. Only an entry .git counts:
// a directory with the contents of a repository may be part of a pull request.
func findRepository(dir string) (top, gitDir string, err error) {
	if dir, err = filepath.Abs(dir); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", "", err
	}
	for top = dir; ; top = filepath.Dir(top) {
		gitDir = filepath.Join(top, ".git")
		info, err := os.Stat(gitDir)
		switch {
		case err == nil && info.IsDir():
			return top, gitDir, nil
		case err == nil:
			// The .git of worktrees and submodules is a file.
			text, err := pointer(gitDir)
			target, ok := strings.CutPrefix(text, "gitdir: ")
			if err == nil && !ok {
				err = fmt.Errorf("%s is neither a directory nor a file that begins with \"gitdir: \"", gitDir)
			}
			return top, below(top, target), err
		case !errors.Is(err, fs.ErrNotExist):
			return "", "", files.Plain(err)
		}
		if top == filepath.Dir(top) {
			return "", "", fmt.Errorf("the working directory %s is in no Git repository: run the command in the one with the tests", dir)
		}
	}
}

// pointer reads a file with one path.
func pointer(file string) (string, error) {
	data, err := files.Read(file, 64<<10)
	return strings.TrimRight(string(data), "\r\n"), err
}

// below resolves a path relative to a directory.
func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// git reads the objects of a repository with the program git.
type git struct {
	// dir names the repository in errors. private is the common directory with the configuration for git.
	dir     string
	private *scratch.Dir
	env     []string
	timeout time.Duration
}

// openGit gives git a private common directory with its own configuration and with links to the references of
// the repository. Only the HEAD of the repository is read in place.
func openGit(ctx context.Context, dir string, timeout time.Duration) (_ *git, err error) {
	common := dir
	text, err := pointer(filepath.Join(dir, "commondir"))
	switch {
	case err == nil:
		common = below(dir, text)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	for _, name := range []string{filepath.Join(dir, "HEAD"), filepath.Join(common, "config")} {
		if err := files.Check(name, files.Configuration); err != nil {
			return nil, files.Plain(err)
		}
	}
	g := &git{dir: dir, timeout: timeout}
	if g.private, err = scratch.New(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			g.private.Remove()
		}
	}()
	private := g.private.Path()
	g.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + private, "XDG_CONFIG_HOME=" + private, "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(private),
		"GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0", "GIT_ALLOW_PROTOCOL=", "GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1",
	}
	// The repository's own configuration matters only for the format of object names and references.
	own, err := g.run(ctx, files.Configuration, "", "config", "--no-includes", "--file", filepath.Join(common, "config"), "--list", "-z")
	if err != nil {
		return nil, err
	}
	config := "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n"
	for entry := range strings.SplitSeq(own, "\x00") {
		key, value, _ := strings.Cut(entry, "\n")
		for _, name := range []string{"objectFormat", "refStorage"} {
			if key == "extensions."+strings.ToLower(name) && plainWord.MatchString(value) {
				config += "\t" + name + " = " + value + "\n"
			}
		}
	}
	err = os.WriteFile(filepath.Join(private, "config"), []byte(config), 0o600)
	for _, name := range []string{"refs", "packed-refs", "reftable", "shallow"} {
		err = cmp.Or(err, os.Symlink(filepath.Join(common, name), filepath.Join(private, name)))
	}
	g.env = append(g.env, "GIT_DIR="+dir, "GIT_COMMON_DIR="+private, "GIT_OBJECT_DIRECTORY="+filepath.Join(common, "objects"))
	return g, err
}

// run runs a git command with an input, and returns its output. More than limit bytes are an error.
func (g *git) run(ctx context.Context, limit int64, in string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"--no-pager", "-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.WaitDelay = g.private.Path(), g.env, strings.NewReader(in), time.Second
	out, said := &limited{most: limit}, &limited{most: 64 << 10}
	cmd.Stdout, cmd.Stderr = out, said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it takes more than %s", g.timeout)
	case out.full:
		err = fmt.Errorf("it prints more than %d MiB", limit>>20)
	}
	if err != nil {
		return "", fmt.Errorf("git %s in %s: %w: %s", args[0], g.dir, err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// limited is a buffer with a limit. Writing beyond it is an error.
type limited struct {
	bytes.Buffer
	most int64
	full bool
}

// Write implements io.Writer.
func (l *limited) Write(data []byte) (int, error) {
	if l.full = l.full || int64(l.Len()+len(data)) > l.most; l.full {
		return 0, errors.New("too much output")
	}
	return l.Buffer.Write(data)
}
