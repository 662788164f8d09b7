package image

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Container is the entry point of a container in its workload.
type Container struct {
	// Image is the name of the image, and Command the entry point of the container; nil for the entry point of the image.
	Image   string
	Command []string
	// Manifests are the paths of the manifests, relative to the project. The nearest Dockerfile counts if there are
	// several.
	Manifests []string
}

// Program is the command that runs the program of an image from its source.
type Program struct {
	// Dir is the working directory, relative to the project.
	Dir string
	// Command is the program. Entry are the other words of the entry point, which every container has, and Arguments the
	// arguments of the image, in whose place a container may have others.
	Command, Entry, Arguments []string
	// Environment has the variables of the image, as NAME=VALUE.
	Environment []string
	// Files are the files of the image that are files of the project: absolute paths of the image, and paths relative to
	// the project.
	Files []File
	// Found describes how the command was found, in a few words.
	Found string
}

// File is a file or directory of the image, and its source.
type File struct{ Image, Source string }

// project is a directory with source code.
type project struct {
	root fs.FS
	// look reports whether a program is on the PATH.
	look func(name string) bool
	// base is the build context, relative to the project.
	base string
	// looks counts the looks at sources of copies.
	looks int
	files
}

// files are the files that were found in a project, by kind.
type files struct {
	dockerfiles []string
	// modules are the directories with a go.mod file, and mains the directories with a main package.
	modules, mains []string
	// prepared are the directories of installed dependencies: bin of a virtual environment, and node_modules/.bin.
	prepared []string
}

const (
	// mostFiles bounds the files of a project that are looked at, and mostSource the size of a file in bytes.
	mostFiles  = 50_000
	mostSource = 1 << 20
	// mostDockerfile bounds the size of a Dockerfile in bytes, mostDockerfiles their number, and mostLooks the looks at the
	// sources of their copies, which may lead in circles.
	mostDockerfile  = 256 << 10
	mostDockerfiles = 500
	mostLooks       = 1_000_000
)

// skipped are directories without code of the project.
var skipped = []string{"vendor", "node_modules", "testdata", "third_party", "_output", "dist", "bin"}

// environments are the names of virtual environments of Python.
var environments = []string{".venv", "venv", "env"}

// Find finds the command in a project. The error names the nearest candidates.
func Find(dir string, c Container) (*Program, error) {
	return search(os.DirFS(dir), c, func(name string) bool {
		_, err := exec.LookPath(name)
		return err == nil
	})
}

func search(root fs.FS, c Container, look func(string) bool) (*Program, error) {
	p := &project{root: root, look: look, base: "."}
	if err := p.scan(func(string) {}); err != nil {
		return nil, err
	}
	if rest, ok := strings.CutPrefix(c.Image, "ko://"); ok {
		return p.ko(rest)
	}
	file := p.dockerfile(c)
	if file == "" {
		return p.without(c)
	}
	return p.follow(file, c)
}

// scan looks for files, and calls also with each file.
func (p *project) scan(also func(file string)) error {
	n := 0
	return fs.WalkDir(p.root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			// An unreadable directory has no command.
			return nil
		}
		if n++; n > mostFiles {
			return fs.SkipAll
		}
		base := d.Name()
		if d.IsDir() {
			switch {
			case slices.Contains(environments, base) && p.exists(path.Join(name, "bin")):
				p.prepared = append(p.prepared, path.Join(name, "bin"))
				return fs.SkipDir
			case base == "node_modules" && p.exists(path.Join(name, ".bin")):
				p.prepared = append(p.prepared, path.Join(name, ".bin"))
				return fs.SkipDir
			case name != "." && (strings.HasPrefix(base, ".") || slices.Contains(skipped, base)):
				return fs.SkipDir
			}
			return nil
		}
		also(name)
		lower := strings.ToLower(base)
		switch {
		case lower == "dockerfile", lower == "containerfile", strings.HasPrefix(lower, "dockerfile."), strings.HasSuffix(lower, ".dockerfile"):
			p.dockerfiles = append(p.dockerfiles, name)
		case base == "go.mod":
			p.modules = append(p.modules, path.Dir(name))
		case strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go") && !slices.Contains(p.mains, path.Dir(name)):
			if text := p.read(name); mainPackage.MatchString(text) && !ignored.MatchString(text) {
				p.mains = append(p.mains, path.Dir(name))
			}
		}
		return nil
	})
}

var (
	mainPackage = regexp.MustCompile(`(?m)^package main\b`)
	ignored     = regexp.MustCompile(`(?m)^//(go:build|\s*\+build) .*\b(ignore|tools)\b`)
)

// read returns a file; empty if it cannot be read. Opening a device has effects, and a named pipe waits for its writer.
func (p *project) read(name string) string {
	info, err := fs.Stat(p.root, name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostSource {
		return ""
	}
	f, err := p.root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	data := make([]byte, info.Size())
	n, _ := io.ReadFull(f, data)
	return string(data[:n])
}

// stages returns the stages of a Dockerfile; nil if it cannot be read.
func (p *project) stages(dockerfile string) []*stage {
	text := p.read(dockerfile)
	if len(text) > mostDockerfile {
		return nil
	}
	return parse(text)
}

func (p *project) exists(name string) bool {
	_, err := fs.Stat(p.root, path.Clean(name))
	return err == nil
}

func (p *project) isDir(name string) bool {
	info, err := fs.Stat(p.root, path.Clean(name))
	return err == nil && info.IsDir()
}

// aside are words in paths of programs that are not the product.
var aside = []string{"example", "examples", "test", "tests", "e2e", "integration", "hack", "demo", "tools", "docs", "dev", "debug", ".github"}

// dockerfile returns the Dockerfile of a container; empty for none.
func (p *project) dockerfile(c Container) string {
	best, most := "", 0
	for _, name := range p.dockerfiles[:min(len(p.dockerfiles), mostDockerfiles)] {
		points := 100 - 2*strings.Count(name, "/")
		for _, part := range strings.FieldsFunc(path.Dir(name), func(r rune) bool { return r == '/' }) {
			if slices.Contains(aside, part) {
				points -= 10
			}
		}
		base := strings.ToLower(path.Base(name))
		if base == "dockerfile" || base == "containerfile" {
			points += 3
		}
		stages := p.stages(name)
		if len(stages) == 0 {
			continue
		}
		last := stages[len(stages)-1]
		entry := c.Command
		if entry == nil {
			entry = slices.Concat(last.entry, last.cmd)
		}
		for _, word := range entry {
			if _, ok := p.origin(stages, last, last.executable(word)); ok {
				points += 5
			}
			if c.Command != nil && last.entry != nil && path.Base(word) == path.Base(last.entry[0]) {
				points += 10
			}
		}
		image := imageName(c.Image)
		if len(entry) > 0 && path.Base(entry[0]) == image {
			points += 10
		}
		for _, hint := range []string{path.Base(path.Dir(name)), strings.TrimSuffix(base, ".dockerfile"), strings.TrimPrefix(base, "dockerfile.")} {
			if image != "" && hint == image {
				points += 10
			} else if image != "" && hint != "" && hint != "." && hint != "dockerfile" && strings.Contains(image, hint) {
				points += 6
			}
		}
		near := 0
		for _, manifest := range c.Manifests {
			near = max(near, common(path.Dir(name), filepath.ToSlash(filepath.Clean(manifest))))
		}
		points += 4 * near
		if points > most {
			best, most = name, points
		}
	}
	return best
}

// imageName returns the last part of the name of an image, without tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(path.Base(image), "@")
	image, _, _ = strings.Cut(image, ":")
	return image
}

// common returns the number of leading directories that two paths have in common.
func common(a, b string) int {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] && x[n] != "." {
		n++
	}
	return n
}

// executable returns the path of a program in the image.
func (s *stage) executable(word string) string {
	if strings.Contains(word, "/") {
		return s.absolute(word)
	}
	return word
}

// source is where a file of an image comes from: a build, or a file of the build context.
type source struct {
	build *goBuild
	stage *stage
	// file is the path in the build context.
	file string
	// missing reports whether the build context does not have the file: a command outside of the Dockerfile makes it.
	missing bool
}

// origin returns the source of a file of a stage. A name without a slash is a program on the PATH.
func (p *project) origin(stages []*stage, s *stage, name string) (source, bool) {
	return p.originIn(stages, s, name, 0)
}

func (p *project) originIn(stages []*stage, s *stage, name string, depth int) (source, bool) {
	if depth > 10 || name == "" || name == "/" {
		return source{}, false
	}
	for _, st := range slices.Backward(s.steps) {
		if st.run {
			for _, b := range st.builds {
				if b.makes(name) {
					return source{build: &b, stage: s}, true
				}
			}
			continue
		}
		for _, from := range st.sources {
			if p.looks++; p.looks > mostLooks {
				return source{}, false
			}
			for _, candidate := range st.candidates(from, name) {
				if other := find(stages, st.from); st.from != "" {
					if other == nil {
						continue
					}
					if found, ok := p.originIn(stages, other, other.absolute(candidate), depth+1); ok {
						return found, true
					}
					continue
				}
				file := path.Join(p.base, path.Clean("/"+candidate))
				if p.exists(file) {
					return source{file: file, stage: s}, true
				}
				// Only a file that is copied by its name is certainly missing.
				if path.Base(candidate) == path.Base(name) && path.Clean(candidate) == path.Clean(from) {
					return source{file: file, stage: s, missing: true}, true
				}
			}
		}
	}
	return source{}, false
}

// candidates returns the paths, as seen by the sources of a copy, of a file that the copy may have made.
func (st *step) candidates(from, name string) (found []string) {
	if !strings.Contains(name, "/") {
		// A program on the PATH.
		switch {
		case path.Base(st.target) == name, path.Base(from) == name:
			return []string{from}
		case path.Base(st.target) == "bin":
			return []string{path.Join(from, name)}
		}
		return nil
	}
	if !st.directory && st.target == name {
		found = append(found, from)
	}
	if path.Join(st.target, path.Base(from)) == name {
		found = append(found, from)
	}
	if rest, ok := strings.CutPrefix(name, strings.TrimSuffix(st.target, "/")+"/"); ok {
		found = append(found, path.Join(from, rest))
	}
	if name == st.target {
		found = append(found, from)
	}
	return found
}

func join(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}

// makes reports whether a build writes a file.
func (b *goBuild) makes(name string) bool {
	output := b.output
	if output == "" {
		return len(b.packages) == 1 && (path.Base(join(b.dir, strings.TrimSuffix(b.packages[0], ".go"))) == path.Base(name))
	}
	output = join(b.dir, output)
	if !strings.Contains(name, "/") {
		return path.Base(output) == name
	}
	return output == name || path.Dir(name) == output && len(b.packages) == 1 && path.Base(b.packages[0]) == path.Base(name)
}

// follow follows a Dockerfile.
func (p *project) follow(file string, c Container) (*Program, error) {
	stages := p.stages(file)
	if len(stages) == 0 {
		return p.without(c)
	}
	p = p.context(file, stages)
	last := stages[len(stages)-1]
	found := &Program{Dir: ".", Found: file}
	for _, name := range last.environment {
		if !slices.Contains(ambient, name) {
			found.Environment = append(found.Environment, name+"="+last.variables[name])
		}
	}
	entry := slices.Clone(c.Command)
	if entry == nil {
		entry = slices.Clone(last.entry)
		found.Arguments = slices.Clone(last.cmd)
		if len(entry) == 0 {
			// The first word of CMD is the program.
			entry, found.Arguments = slices.Clone(last.cmd), nil
			if len(entry) > 0 {
				entry, found.Arguments = entry[:1], entry[1:]
			}
		}
	}
	if len(entry) > 0 && slices.Contains(inits, path.Base(entry[0])) {
		entry, found.Arguments = slices.Concat(entry, found.Arguments)[1:], nil
		for len(entry) > 0 && strings.HasPrefix(entry[0], "-") {
			entry = entry[1:]
		}
	}
	if len(entry) == 0 {
		return p.without(c)
	}
	p.copies(found, last)
	// A program of the base image may wrap the program of the project: tini, or go-runner.
	all := slices.Concat(entry, found.Arguments)
	for i, word := range all {
		at, ok := p.origin(stages, last, last.executable(word))
		if !ok || i > 0 && at.build == nil && !at.missing {
			continue
		}
		if i > 0 && interpreter(all[0]) {
			break
		}
		if err := p.build(found, stages, at, word); err != nil {
			return nil, err
		}
		if i > 0 {
			found.Found += ", without " + strings.Join(all[:i], " ")
		}
		if i < len(entry) {
			found.Entry = entry[i+1:]
		} else {
			found.Arguments = all[i+1:]
		}
		return found, nil
	}
	return p.interpreted(found, stages, last, entry)
}

// inits are programs that start another one and reap orphans, as the session does.
var inits = []string{"tini", "dumb-init", "catatonit"}

// ambient are variables that this machine has its own values for.
var ambient = []string{"PATH", "HOME", "USER", "TMPDIR", "LD_LIBRARY_PATH", "GOPATH", "GOROOT", "GOPROXY", "JAVA_HOME", "NODE_HOME", "SHELL", "LANG"}

// context returns the project with the build context of a Dockerfile: the project, or the directory of the file if more
// sources of its copies are there.
func (p *project) context(file string, stages []*stage) *project {
	dir := path.Dir(file)
	here, there := 0, 0
	for _, s := range stages {
		for _, st := range s.steps {
			if st.run || st.from != "" {
				continue
			}
			for _, from := range st.sources {
				from = path.Clean("/" + from)
				if from == "/" || strings.Contains(from, "*") {
					continue
				}
				if p.exists(path.Join(".", from)) {
					here++
				}
				if p.exists(path.Join(dir, from)) {
					there++
				}
			}
		}
	}
	context := *p
	if there > here || there == here && p.hasSource(dir) {
		context.base = dir
	}
	return &context
}

// hasSource reports whether a directory has files besides the descriptions of images.
func (p *project) hasSource(dir string) bool {
	return slices.ContainsFunc(p.list(dir), func(name string) bool {
		lower := strings.ToLower(name)
		return !strings.Contains(lower, "dockerfile") && !strings.HasPrefix(lower, ".docker") && path.Ext(lower) != ".sh" && path.Ext(lower) != ".md"
	})
}
