package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// IgnoreFile is the file in a directory that lists paths below it to skip. It has the syntax of a
// .gitignore.
const IgnoreFile = ".gatehouseignore"

// Ignore selects the files to skip. The zero value skips none.
type Ignore struct {
	// Tests skips files for tests below a directory.
	Tests bool
	// Files are files to skip, by their clean paths.
	Files map[string]bool
	rules []ignoreRule
	// known are the directories whose IgnoreFile was read.
	known map[string]bool
}

type ignoreRule struct {
	// base is the directory that the pattern is relative to.
	base string
	// pattern matches paths below base, or names if base is empty.
	pattern *regexp.Regexp
	// again is set for a negated pattern, directories for a pattern that matches directories only.
	again, directories bool
}

// NewIgnore skips the paths below the working directory that match patterns or the IgnoreFile of
// the working directory.
func NewIgnore(patterns []string) (*Ignore, error) {
	i, err := NewPatterns(patterns)
	if err != nil {
		return nil, err
	}
	return i, i.Enter(".")
}

// NewPatterns is NewIgnore with patterns only.
func NewPatterns(patterns []string) (*Ignore, error) {
	i := &Ignore{}
	return i, i.add(".", patterns)
}

// Enter reads the IgnoreFile of a directory, if it has one.
func (i *Ignore) Enter(dir string) error {
	dir = clean(dir)
	if i.known[dir] {
		return nil
	}
	if i.known == nil {
		i.known = map[string]bool{}
	}
	i.known[dir] = true
	name := filepath.Join(dir, IgnoreFile)
	data, err := files.ReadFound(name, files.Configuration, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := i.add(dir, strings.Split(string(data), "\n")); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// clean makes the paths of files and directories comparable.
func clean(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		return absolute
	}
	return filepath.Clean(path)
}

func (i *Ignore) add(base string, patterns []string) error {
	for _, line := range patterns {
		line = strings.TrimRight(line, " \t\r")
		if line == "" || line[0] == '#' {
			continue
		}
		r := ignoreRule{base: clean(base)}
		text, again := strings.CutPrefix(line, "!")
		r.again = again
		text, r.directories = strings.CutSuffix(text, "/")
		// A pattern without a slash matches names, at any depth.
		if !strings.Contains(text, "/") {
			text = "**/" + text
		}
		var err error
		if r.pattern, err = compile(strings.TrimPrefix(text, "/")); err != nil {
			return fmt.Errorf("the pattern %q: %w", line, err)
		}
		i.rules = append(i.rules, r)
	}
	return nil
}

// compile converts a pattern to a regular expression.
func compile(pattern string) (*regexp.Regexp, error) {
	if _, err := path.Match(strings.ReplaceAll(pattern, "**", "*"), ""); err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("^")
	for rest := pattern; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			rest = rest[3:]
		case rest == "**":
			b.WriteString(".*")
			rest = ""
		case rest[0] == '*':
			b.WriteString("[^/]*")
			rest = rest[1:]
		case rest[0] == '?':
			b.WriteString("[^/]")
			rest = rest[1:]
		case rest[0] == '[':
			end := strings.IndexByte(rest[1:], ']') + 2
			class := rest[:end]
			if strings.HasPrefix(class, "[!") {
				class = "[^" + class[2:]
			}
			b.WriteString(class)
			rest = rest[end:]
		case rest[0] == '\\' && len(rest) > 1:
			b.WriteString(regexp.QuoteMeta(rest[1:2]))
			rest = rest[2:]
		default:
			b.WriteString(regexp.QuoteMeta(rest[:1]))
			rest = rest[1:]
		}
	}
	return regexp.Compile(b.String() + "$")
}

// Ignores reports whether a file or a directory is skipped. Files in a skipped directory are
// skipped, too.
func (i *Ignore) Ignores(name string, directory bool) bool {
	if i == nil {
		return false
	}
	if named := i.Files[filepath.Clean(name)]; named || len(i.rules) == 0 {
		return named
	}
	name = clean(name)
	for parent := filepath.Dir(name); parent != filepath.Dir(parent); parent = filepath.Dir(parent) {
		if i.matches(parent, true) {
			return true
		}
	}
	return i.matches(name, directory)
}

func (i *Ignore) matches(name string, directory bool) bool {
	ignored := false
	for _, r := range i.rules {
		below, err := filepath.Rel(r.base, name)
		if err != nil || below == "." || below == ".." || strings.HasPrefix(below, ".."+string(filepath.Separator)) || r.directories && !directory {
			continue
		}
		if r.pattern.MatchString(filepath.ToSlash(below)) {
			ignored = !r.again
		}
	}
	return ignored
}
