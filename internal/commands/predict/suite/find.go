package suite

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// maxFiles bounds the files that are searched, and maxTests the tests.
const (
	maxFiles = 100_000
	maxTests = 100_000
)

// place has the YAML nodes of a test and its expectations.
type place struct {
	test, expect *yamlv3.Node
	// shared reports whether other tests have the same expectations.
	shared bool
}

// Set has the tests of all paths.
type Set struct {
	Suites []*Suite
	// Errors lists the faults of files.
	Errors []*FileError
	// Without lists the searched files without tests.
	Without []string
}

// Reading configures the reading of tests.
type Reading struct {
	// Call means that running webhooks evaluate the policies of other engines (S24.17). Through names the engines that
	// evaluate their own policies (S24.33).
	Call    bool
	Through []string
	// Update keeps the positions of tests, which Report.Update needs, and which take more memory than the tests.
	Update bool
}

// Find reads the tests in paths, which are files and directories. The error reports that a path cannot be read.
func Find(paths []string, how Reading) (*Set, error) {
	f := &finder{roots: paths, Reading: how, seen: map[string]bool{}}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, files.Plain(err)
		}
		if !info.IsDir() {
			without := len(f.set.Without)
			f.file(path, true)
			if len(f.set.Without) > without {
				f.wrong(path, 0, "there are no tests in the file: a document of %s, kind %s, has some", ownVersion, ownKind)
			}
			continue
		}
		if err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil && name == path:
				return err
			case err != nil:
				f.wrong(name, 0, "%v", files.Plain(err))
				return nil
			case entry.IsDir():
				// Kyverno's policies keep their tests in a hidden directory.
				if name != path && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".kyverno-test" {
					return filepath.SkipDir
				}
				return nil
			}
			if entry.Type()&fs.ModeSymlink != 0 {
				if err := files.CheckFound(name, path); errors.As(err, new(files.Refused)) {
					f.wrong(name, 0, "%v", files.Cause(err))
					return nil
				}
			}
			f.file(name, false)
			if f.files > maxFiles {
				return fmt.Errorf("%s has more than %d files: name fewer directories", path, maxFiles)
			}
			return nil
		}); err != nil {
			return nil, files.Plain(err)
		}
	}
	f.ambiguous()
	tests := 0
	for _, s := range f.set.Suites {
		tests += len(s.Tests)
	}
	if tests > maxTests {
		return nil, fmt.Errorf("there are %d tests, and may be %d: name fewer files or directories", tests, maxTests)
	}
	slices.SortStableFunc(f.set.Errors, func(a, b *FileError) int {
		if a.File != b.File {
			return 0
		}
		return a.Line - b.Line
	})
	f.set.Errors = slices.CompactFunc(f.set.Errors, func(a, b *FileError) bool { return *a == *b })
	return &f.set, nil
}

type finder struct {
	Reading
	roots []string
	set   Set
	seen  map[string]bool
	// hooks are the webhook configurations in the paths, once they are read.
	hooks *[]*manifests.Object
	// contents has, by policy name, the contents of the policies that running engines must have.
	contents map[string]map[string]bool
	files    int
	// constraints counts the policies made from constraints.
	constraints int
}

// reader reads the documents of one format, if a file contains the mark of the format.
type reader struct {
	mark *regexp.Regexp
	read func(f *finder, path string, data []byte, root *yamlv3.Node) bool
}

var ownMark = regexp.MustCompile(`\b` + ownKind + `\b`)

func readers() []reader {
	return []reader{
		{ownMark, (*finder).readOwn},
		{regexp.MustCompile(`(?m)^kind:\s*Test\s*$|cli\.kyverno\.io/`), (*finder).kyverno},
		{regexp.MustCompile(`test\.gatekeeper\.sh/`), (*finder).gator},
		{regexp.MustCompile(`(?m)^(vapT|mapT|t)estSuites\s*:`), (*finder).kaptest},
	}
}

// testGroup matches documents of the API groups with tests, of any kind.
var testGroup = regexp.MustCompile(`apiVersion["']?\s*:\s*["']?(gatehouse\.dev|test\.gatekeeper\.sh|cli\.kyverno\.io)/`)

// marked reports whether a file may contain tests.
func marked(data []byte) bool {
	return testGroup.Match(data) || slices.ContainsFunc(readers(), func(r reader) bool { return r.mark.Match(data) })
}

// testKinds has, by group, the kind of documents with tests and the other kinds of the group.
var testKinds = map[string]struct {
	tests  string
	others []string
}{
	"gatehouse.dev": {ownKind, []string{
		"AdmissionEngine", "AdmissionExplanation", "AdmissionServer", "AdmissionTrace", "RegistrationState", "ClusterSnapshot", "Configuration", "ServerConfiguration",
		"RecordedRequest", "AuditReport", "CheckReport", "LintReport", "ReplayReport", "TestReport",
	}},
	"test.gatekeeper.sh": {"Suite", nil},
	"cli.kyverno.io":     {"Test", []string{"ClusterResource", "Context", "HTTPResponse", "UserInfo", "Value", "Values"}},
}

// stray reports a document in a group with tests whose kind the group does not have (S24.21).
func (f *finder) stray(path string, root *yamlv3.Node) {
	apiVersion, kind := header(root)
	group, _, _ := strings.Cut(apiVersion, "/")
	if of, ok := testKinds[group]; ok && !slices.Contains(of.others, kind) {
		hint := cmp.Or(nearest.Suggestion("", kind, []string{of.tests}), ": the kind "+of.tests+" has tests")
		f.wrong(path, member(root, "kind").Line, "%s has no kind %q%s", group, kind, hint)
	}
}

// wrong reports a fault of a file.
func (f *finder) wrong(path string, line int, format string, args ...any) {
	f.set.Errors = append(f.set.Errors, &FileError{path, line, fmt.Sprintf(format, args...)})
}

// file reads a file, if it contains tests. named reports whether it is one of the paths.
func (f *finder) file(path string, named bool) {
	ext := filepath.Ext(path)
	plain := strings.ToLower(ext)
	known := slices.Contains([]string{".yaml", ".yml", ".json", ".txtar"}, plain)
	if !known && !named {
		return
	}
	if clean := filepath.Clean(path); f.seen[clean] {
		return
	} else {
		f.seen[clean] = true
	}
	f.files++
	data, err := files.Read(path, files.Configuration)
	if err != nil {
		if named || !errors.As(err, new(files.Refused)) {
			f.wrong(path, 0, "%v", files.Plain(err))
		}
		return
	}
	before, nul := len(f.set.Suites)+len(f.set.Errors), bytes.IndexByte(data, 0)
	switch {
	case !marked(bytes.ReplaceAll(data, []byte{0}, nil)):
	case nul >= 0:
		f.wrong(path, 1+bytes.Count(data[:nul], []byte("\n")), "the file has NUL bytes, as UTF-16 has: save it as UTF-8")
	case known && ext != plain:
		f.wrong(path, 0, "the file has tests, and is not read, because its name does not end in %s", plain)
	case ext == ".txtar":
		f.archive(path, data)
	default:
		f.documents(path, data)
	}
	if len(f.set.Suites)+len(f.set.Errors) == before {
		f.set.Without = append(f.set.Without, path)
	}
}

// documents reads the documents of a file.
func (f *finder) documents(path string, data []byte) {
	before, only := len(f.set.Suites), true
	wrong := eachDocument(path, data, func(root *yamlv3.Node) {
		apiVersion, kind := header(root)
		only = only && kind == ownKind && apiVersion == ownVersion
		if !slices.ContainsFunc(readers(), func(r reader) bool { return r.read(f, path, data, root) }) {
			f.stray(path, root)
		}
	})
	if wrong != nil {
		f.set.Errors = append(f.set.Errors, wrong)
		return
	}
	for _, s := range f.set.Suites[before:] {
		s.only = only
	}
}

// eachDocument calls read with each document of a text. At a document that cannot be read it stops and returns the
// error.
func eachDocument(file string, text []byte, read func(root *yamlv3.Node)) *FileError {
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	for {
		root := &yamlv3.Node{}
		switch err := decoder.Decode(root); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &FileError{file, max(manifests.LineOf(err), 1), manifests.PlainYAML(err)}
		case len(root.Content) > 0:
			read(root.Content[0])
		}
	}
}

// readOwn reads a document of Gatehouse's own format.
func (f *finder) readOwn(path string, data []byte, root *yamlv3.Node) bool {
	apiVersion, kind := header(root)
	if kind != ownKind {
		return false
	}
	s := &Suite{File: path, Format: "gatehouse", referenced: map[string]bool{}, text: data}
	p := &parser{decoder: decoder{file: path}, suite: s}
	if apiVersion != ownVersion {
		p.fail(root, "apiVersion %q of the kind %s is not %s", apiVersion, ownKind, ownVersion)
	}
	p.object = func(n *yamlv3.Node, ref string) (map[string]any, error) {
		name, of, _ := strings.Cut(ref, "#")
		name = filepath.Join(filepath.Dir(path), filepath.FromSlash(name))
		s.referenced[filepath.Clean(name)] = true
		set, err := readNamed(name, f.worldOf())
		if err != nil {
			return nil, err
		}
		return pick(set.Objects, set.Problems, of)
	}
	p.parse(root)
	if !f.Update {
		s.text = nil
		for _, t := range s.Tests {
			t.place = place{}
		}
	}
	if !s.own {
		s.paths = f.worldOf()
	}
	f.add(s, p.errors)
	return true
}

// add adds a suite, unless its file has faults.
func (f *finder) add(s *Suite, wrong []*FileError) {
	if len(wrong) > 0 {
		f.set.Errors = append(f.set.Errors, wrong...)
		return
	}
	f.set.Suites = append(f.set.Suites, s)
}

// worldOf returns the paths of the default test environment: the named directories, and the directories of the named
// files.
func (f *finder) worldOf() []string {
	var list []string
	for _, path := range f.roots {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			path = filepath.Dir(path)
		}
		if !slices.Contains(list, path) {
			list = append(list, path)
		}
	}
	return list
}

// readNamed reads a file that a file with tests names.
func readNamed(name string, named []string) (*manifests.Set, error) {
	if err := files.CheckFound(name, named...); err != nil {
		return nil, files.Plain(err)
	}
	return manifests.Read([]string{name}, nil)
}

// pick returns the referenced object: the only one of a file, or by name, KIND/NAME, or number from 1.
func pick(objects []*manifests.Object, problems []manifests.Problem, of string) (map[string]any, error) {
	for _, p := range problems {
		if !p.Warning {
			return nil, fmt.Errorf("%s:%d: %s", p.File, p.Line, p.Message)
		}
	}
	if n, err := strconv.Atoi(of); err == nil {
		if n < 1 || n > len(objects) {
			return nil, fmt.Errorf("there is no object %d: the file has %d", n, len(objects))
		}
		return objects[n-1].Content, nil
	}
	var found []*manifests.Object
	for _, o := range objects {
		name, kind := at(o.Content, "metadata", "name"), at(o.Content, "kind")
		if of == "" || of == name || of == kind+"/"+name {
			found = append(found, o)
		}
	}
	switch {
	case len(found) == 1:
		return found[0].Content, nil
	case len(found) == 0 && of == "":
		return nil, errors.New("there is no object in the file")
	case len(found) == 0:
		return nil, fmt.Errorf("there is no object %q in the file", of)
	}
	return nil, fmt.Errorf("the file has %d such objects: write FILE#NAME, FILE#KIND/NAME or FILE#NUMBER", len(found))
}

// archive reads a txtar file: the sections with tests, and the sections of the test environment.
func (f *finder) archive(path string, data []byte) {
	parsed := txtar.Parse(data)
	sections := make([]section, len(parsed.Files))
	line, k := 0, 0
	for text := range bytes.Lines(data) {
		line++
		if k < len(sections) && bytes.HasPrefix(text, []byte("-- ")) && bytes.HasSuffix(bytes.TrimSpace(text), []byte(" --")) {
			sections[k] = section{parsed.Files[k].Name, line, parsed.Files[k].Data}
			k++
		}
	}
	s := &Suite{File: path, Format: "gatehouse", own: true, referenced: map[string]bool{}, text: data}
	var wrong []*FileError
	tests := map[string]bool{}
	for _, part := range sections {
		if !ownMark.Match(part.data) && !testGroup.Match(part.data) {
			continue
		}
		if failed := eachDocument(path, part.placed(), func(root *yamlv3.Node) {
			if _, kind := header(root); kind != ownKind {
				f.stray(path, root)
				return
			}
			tests[part.name] = true
			p := &parser{decoder: decoder{file: path}, suite: s}
			p.object = func(n *yamlv3.Node, ref string) (map[string]any, error) {
				name, of, _ := strings.Cut(ref, "#")
				i := slices.IndexFunc(sections, func(other section) bool { return other.name == name })
				if i < 0 {
					return nil, fmt.Errorf("the archive has no file %q", name)
				}
				s.referenced[name] = true
				c := manifests.Parse(path, sections[i].placed())
				return pick(c.Objects, c.Problems, of)
			}
			p.parse(root)
			wrong = append(wrong, p.errors...)
		}); failed != nil {
			wrong = append(wrong, failed)
		}
	}
	if len(tests) == 0 && len(wrong) == 0 {
		return
	}
	for _, part := range sections {
		switch ext := filepath.Ext(part.name); {
		case tests[part.name] || s.referenced[part.name]:
		case ext == ".yaml" || ext == ".yml" || ext == ".json":
			s.inside = append(s.inside, part)
		}
	}
	f.add(s, wrong)
}

// World returns the objects of the suite's test environment.
func (s *Suite) World() ([]*manifests.Object, error) {
	w, err := world([]*Suite{s})
	if err != nil {
		return nil, err
	}
	return w.Objects, nil
}

// worldSet has the objects of a test environment.
type worldSet struct {
	*manifests.Set
}

// world reads the objects of the test environment that suites share.
func world(suites []*Suite) (*worldSet, error) {
	s := suites[0]
	set := &manifests.Set{}
	if len(s.paths) > 0 {
		// The files with tests, which can be many, are not read again.
		ignore := &manifests.Ignore{Files: map[string]bool{}}
		for _, s := range suites {
			ignore.Files[filepath.Clean(s.File)] = s.only
		}
		var err error
		if set, err = manifests.ReadBut(ignore, s.paths, nil); err != nil {
			return nil, err
		}
	}
	for _, part := range s.inside {
		c := manifests.Parse(s.File, part.placed())
		set.Objects = append(set.Objects, c.Objects...)
		set.Problems = append(set.Problems, c.Problems...)
		if !slices.Contains(set.Files, s.File) {
			set.Files = append(set.Files, s.File)
		}
	}
	referenced := map[string]bool{}
	for _, s := range suites {
		for file := range s.referenced {
			referenced[file] = true
		}
	}
	set.Objects = slices.DeleteFunc(set.Objects, func(o *manifests.Object) bool {
		return isTests(o.Content) || len(s.inside) == 0 && referenced[filepath.Clean(o.File)]
	})
	w := &worldSet{set}
	for _, s := range suites {
		if s.extend != nil {
			s.extend(w)
		}
	}
	return w, nil
}

// isTests reports whether an object is a document with tests.
func isTests(content map[string]any) bool {
	kind, version := at(content, "kind"), at(content, "apiVersion")
	group, _, _ := strings.Cut(version, "/")
	return kind == ownKind && version == ownVersion || group == "cli.kyverno.io" || isKyvernoTest(version, kind) || group == "test.gatekeeper.sh"
}

// worldKey is equal for suites that share a test environment.
func (s *Suite) worldKey() string {
	if s.engine != "" {
		return "\x00engine " + s.engine
	}
	if s.Format == "gator" {
		// Their policies reject nothing, and each has a name of its own.
		return "\x00gator"
	}
	if s.own || s.extend != nil || len(s.programs) > 0 {
		return s.File + "\x00" + s.world
	}
	return "\x00" + strings.Join(s.paths, "\x00")
}
