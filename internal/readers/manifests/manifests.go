package manifests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// Stdin is the path of standard input.
const Stdin = "-"

// most bounds the documents of all paths together, and the elements of their lists. A check holds about 50 KB for
// each object. Tests take a smaller bound.
var most = 50_000

// stdinName is the name of standard input in messages.
const stdinName = "standard input"

// Object is one object of a file.
type Object struct {
	// File is the path of the file as it was named, Line the line in it where the object begins.
	File string
	Line int
	// Content has the object. It must not be changed.
	Content map[string]any

	// document is the line of the file where the object's document begins. node returns the object's YAML node on
	// demand; nil if its lines are unknown.
	document int
	node     func() *yamlv3.Node
}

// With returns the object with another content, at the same place.
func (o *Object) With(content map[string]any) *Object {
	out := *o
	out.Content = content
	return &out
}

// Problem is an unreadable part of a file, or a part with another meaning than it appears to have. Warning is set
// if the objects were read nevertheless.
type Problem struct {
	File    string
	Line    int
	Message string
	Warning bool
}

// Note is a part that is not an object, and is skipped.
type Note struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// MadeByOthers is in the Message of a Note about input of another program that generates objects.
const MadeByOthers = "give the command what "

func outputOf(by, dir string) string {
	return fmt.Sprintf("%s'%s %s' makes, as -", MadeByOthers, by, dir)
}

// Set is the result of Read.
type Set struct {
	// Objects are in the order of the paths, of the names in a directory, and of the file.
	Objects  []*Object
	Problems []Problem
	Notes    []Note
	// Files are the files that were read, in order.
	Files []string
	// Acceptances are the comments that accept findings.
	Acceptances []Acceptance
	// Kustomized is set if a file configures kustomize.
	Kustomized bool
	// Patched are the objects that kustomizations change.
	Patched []Patch
	// built has the files of each kustomization.
	built []map[string]bool
	// Unused are the files that no kustomization reads, each with the kustomization beside it, or another one, and the files
	// that only a kustomization reads which sets no namespace and is no part of another one, each with another one.
	Unused map[string]string
}

// IsBuilt reports whether a kustomization has a file.
func (s *Set) IsBuilt(file string) bool {
	return s != nil && slices.ContainsFunc(s.built, func(files map[string]bool) bool { return files[filepath.Clean(file)] })
}

// Together reports whether two files are one, or a kustomization has both.
func (s *Set) Together(file, other string) bool {
	file, other = filepath.Clean(file), filepath.Clean(other)
	return file == other || slices.ContainsFunc(s.built, func(files map[string]bool) bool { return files[file] && files[other] })
}

// reader builds a Set.
type reader struct {
	set Set
	// patches are the files that are patches of a kustomization. resources are the resources that the kustomization
	// of a directory names.
	patches   map[string]string
	resources map[string][]string
	// builds has the kustomization of each directory that names resources.
	builds map[string]string
	// named reports whether the kustomization of a directory sets a namespace.
	named map[string]bool
	// tests are the skipped directories and files for tests.
	tests []string
	// seen are the files that were read.
	seen map[string]bool
	// size is the number of bytes that were read.
	size int64
	// ignore has the paths to skip.
	ignore *Ignore
}

// TooMuch is the error of Read for input over its limits.
type TooMuch string

// Error implements error.
func (t TooMuch) Error() string { return string(t) }

// Read reads paths. A path is a file, a directory, or Stdin. In a directory, it reads the files .yaml, .yml and
// .json in it and below it, without hidden directories. It is an error if a path itself cannot be read, or if all
// paths together have too many documents, or more bytes than one file may have; an error below a path is a Problem.
func Read(paths []string, stdin io.Reader) (*Set, error) { return ReadBut(&Ignore{}, paths, stdin) }

// ReadBut is Read without the ignored files, which become a Note.
func ReadBut(ignore *Ignore, paths []string, stdin io.Reader) (*Set, error) {
	r := &reader{ignore: ignore, patches: map[string]string{}, resources: map[string][]string{}, builds: map[string]string{}, named: map[string]bool{}, seen: map[string]bool{}}
	for _, path := range paths {
		if path == Stdin {
			data, err := files.ReadFrom(stdin, files.Objects)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", stdinName, err)
			}
			if err := r.add(stdinName, data); err != nil {
				return nil, err
			}
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, files.Plain(err)
		}
		if r.ignored(path, info.IsDir()) {
			continue
		}
		if info.IsDir() {
			if err := r.directory(path); err != nil {
				return nil, err
			}
			continue
		}
		if err := r.file(path, files.ReadArgument); err != nil {
			return nil, err
		}
	}
	for i := range r.set.Patched {
		p := &r.set.Patched[i]
		p.files = r.builtOn(filepath.Dir(p.Kustomization))
	}
	for dir := range r.builds {
		r.set.built = append(r.set.built, r.builtOn(dir))
	}
	r.unused()
	if n := len(r.tests); n > 0 {
		where := ""
		if n > 1 {
			where = fmt.Sprintf(" in %d places, of which this is the first", n)
		}
		r.set.Notes = append(r.set.Notes, Note{File: r.tests[0], Message: "objects for tests are skipped" + where + ": name one to read it"})
	}
	return &r.set, nil
}

// add adds the content of a file.
func (r *reader) add(file string, data []byte) error {
	if r.size += int64(len(data)); r.size > files.Objects {
		return TooMuch(fmt.Sprintf("%s: with this file, there are more than %d MiB to read: name fewer files or directories", file, files.Objects>>20))
	}
	left := most - len(r.set.Objects) - len(r.set.Problems) - len(r.set.Notes)
	c, err := parse(file, data, left)
	if err != nil {
		return TooMuch(fmt.Sprintf("%s: with this file, there are more than %d documents and elements of lists: name fewer files or directories, or split the file", file, most))
	}
	r.set.Files = append(r.set.Files, file)
	r.set.Objects = append(r.set.Objects, c.Objects...)
	r.set.Problems = append(r.set.Problems, c.Problems...)
	r.set.Notes = append(r.set.Notes, c.Notes...)
	r.set.Acceptances = append(r.set.Acceptances, c.Acceptances...)
	return nil
}

// ignored reports whether a path is skipped, and adds a note.
func (r *reader) ignored(path string, directory bool) bool {
	if !r.ignore.Ignores(path, directory) {
		return false
	}
	r.set.Notes = append(r.set.Notes, Note{File: path, Message: "ignored"})
	return true
}

// file reads a file with a function of package files, once.
func (r *reader) file(path string, read func(string, int64) ([]byte, error)) error {
	if r.seen[filepath.Clean(path)] {
		return nil
	}
	r.seen[filepath.Clean(path)] = true
	data, err := read(path, files.Objects)
	if err != nil {
		return files.Plain(err)
	}
	return r.add(path, data)
}

// chartFile is the file that makes a directory a Helm chart.
const chartFile = "Chart.yaml"

// ofTests are words in the names of directories with files for tests, which often have deliberate errors. A file is
// for tests if its name has the first of these words.
var ofTests = []string{"e2e", "fixtures", "test", "testdata", "tests"}

// isOfTests reports whether a word of a name is one of words, as in test-resources.
func isOfTests(name string, words []string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("-_.", r) }), func(word string) bool {
		return slices.Contains(words, word)
	})
}

// IsManifest reports whether a file is read in a directory, by its name.
func IsManifest(name string) bool { return slices.Contains(extensions, filepath.Ext(name)) }

// extensions are the extensions of files that are read in directories.
var extensions = []string{".yaml", ".yml", ".json"}

// directory reads the files below a directory.
func (r *reader) directory(root string) error {
	var found []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err != nil {
			if name == "." {
				return files.Plain(&fs.PathError{Path: root, Err: files.Cause(err)})
			}
			r.set.Problems = append(r.set.Problems, Problem{File: path, Message: files.Cause(err).Error()})
			return fs.SkipDir
		}
		if !d.IsDir() {
			switch {
			case !IsManifest(name) && !isKustomization(path) || r.ignored(path, false):
			case r.ignore.Tests && isOfTests(d.Name(), ofTests[:1]):
				r.tests = append(r.tests, path)
			case d.Type()&fs.ModeSymlink != 0 && r.leadsOut(path, root):
			default:
				found = append(found, path)
			}
			return nil
		}
		if name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if name != "." && r.ignored(path, true) {
			return fs.SkipDir
		}
		if name != "." && r.ignore.Tests && isOfTests(d.Name(), ofTests) {
			r.tests = append(r.tests, path)
			return fs.SkipDir
		}
		if err := r.ignore.Enter(path); err != nil {
			return err
		}
		if filepath.Base(path) == "templates" && isFile(filepath.Join(filepath.Dir(path), chartFile)) {
			chart := filepath.Dir(path)
			r.set.Notes = append(r.set.Notes, Note{File: path,
				Message: "templates of a Helm chart are not objects: " + outputOf("helm template", chart)})
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, path := range found {
		if isKustomization(path) {
			r.kustomization(path)
		}
	}
	for _, path := range found {
		clean := filepath.Clean(path)
		if of, ok := r.patches[clean]; ok {
			r.set.Notes = append(r.set.Notes, Note{File: path, Message: "a patch of " + of + " is not an object"})
			continue
		}
		if isKustomization(path) {
			continue
		}
		if err := r.file(path, files.Read); err != nil {
			if _, ok := errors.AsType[TooMuch](err); ok {
				return err
			}
			r.set.Problems = append(r.set.Problems, Problem{File: path, Message: strings.TrimPrefix(err.Error(), path+": ")})
		}
	}
	return nil
}

// leadsOut reports whether a link leads out of the user's folders, which is a Problem.
func (r *reader) leadsOut(path, root string) bool {
	err := files.CheckFound(path, root)
	if !errors.As(err, new(files.Refused)) {
		return false
	}
	r.set.Problems = append(r.set.Problems, Problem{File: path, Message: files.Cause(err).Error()})
	return true
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
