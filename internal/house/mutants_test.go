package house

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

var mutate = flag.Bool("mutate", false, "test each mutant; without it, only see that all patches apply, and in the long run that they compile")

// TestMutants applies each patch below testdata/mutants of a package: it changes one decision, and the unit
// tests of the package must fail. A mutant that does not compile proves nothing. If a patch no longer applies
// because the decision has changed, write the patch anew, or delete it together with the decision.
func TestMutants(t *testing.T) {
	t.Chdir(root)
	var patches []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(filepath.ToSlash(path), "/testdata/mutants/") {
			patches = append(patches, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(patches) < 40 {
		t.Errorf("there are %d mutants; at least 40 are expected", len(patches))
	}
	sources := map[string]*source{}
	for _, path := range patches {
		t.Run(strings.TrimSuffix(filepath.ToSlash(path), ".patch"), func(t *testing.T) {
			pkg, _, _ := strings.Cut(filepath.ToSlash(path), "/testdata/")
			file, content := mutated(t, path)
			if filepath.ToSlash(filepath.Dir(file)) != pkg {
				t.Fatalf("it changes %s; a mutant changes one file of its package, %s", file, pkg)
			}
			if !speed.IsLong() && !*mutate {
				// Compiling needs the imported packages.
				return
			}
			if sources[pkg] == nil {
				sources[pkg] = sourceOf(t, pkg)
			}
			if err := sources[pkg].compile(file, content); err != nil {
				t.Fatalf("the mutant does not compile, so no test would kill it: %v", err)
			}
			if *mutate {
				mustDie(t, pkg, file, content)
			}
		})
	}
}

// source is a package that is type-checked with one of its files replaced.
type source struct {
	path, version string
	set           *token.FileSet
	files         map[string]*ast.File
	// imported finds the compiled packages that this package imports.
	imported types.Importer
}

// sourceOf reads a package of this module and builds its imports.
func sourceOf(t *testing.T, pkg string) *source {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps",
		"-json=Dir,ImportPath,GoFiles,Export,Module", "./"+pkg)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, complaints.String())
	}
	s := &source{set: token.NewFileSet(), files: map[string]*ast.File{}}
	exports := map[string]string{}
	for list := json.NewDecoder(bytes.NewReader(out)); list.More(); {
		var p struct {
			Dir, ImportPath, Export string
			GoFiles                 []string
			Module                  *struct{ GoVersion string }
		}
		if err := list.Decode(&p); err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.ImportPath != modulePath+"/"+pkg {
			continue
		}
		s.path, s.version = p.ImportPath, "go"+p.Module.GoVersion
		for _, name := range p.GoFiles {
			if s.files[pkg+"/"+name], err = parser.ParseFile(s.set, filepath.Join(p.Dir, name), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.imported = importer.ForCompiler(s.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return s
}

// compile returns the compile error of the package with one file replaced.
func (s *source) compile(file, content string) error {
	mutant, err := parser.ParseFile(s.set, file, content, 0)
	if err != nil {
		return err
	}
	files := []*ast.File{mutant}
	for name, f := range s.files {
		if name != file {
			files = append(files, f)
		}
	}
	_, err = (&types.Config{Importer: s.imported, GoVersion: s.version}).Check(s.path, s.set, files, nil)
	return err
}

// mutated returns the file that a patch changes, and its content after the change.
func mutated(t *testing.T, patch string) (file, content string) {
	t.Helper()
	data, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	var hunks [][2][]string
	for _, line := range strings.SplitAfter(string(data), "\n") {
		last := len(hunks) - 1
		switch {
		case strings.HasPrefix(line, "+++ b/"):
			file = strings.TrimSpace(strings.TrimPrefix(line, "+++ b/"))
		case strings.HasPrefix(line, "@@"):
			hunks = append(hunks, [2][]string{})
		case last < 0 || line == "":
			// The text above the first hunk describes the mutant.
		default:
			if line[0] != '+' {
				hunks[last][0] = append(hunks[last][0], line[1:])
			}
			if line[0] != '-' {
				hunks[last][1] = append(hunks[last][1], line[1:])
			}
		}
	}
	if len(hunks) == 0 || file == "" {
		t.Fatal("it is not a patch: make it with git diff")
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content = string(source)
	for _, h := range hunks {
		before, after := strings.Join(h[0], ""), strings.Join(h[1], "")
		if n := strings.Count(content, before); n != 1 {
			t.Fatalf("it does not apply: %s has these lines %d times:\n%s", file, n, before)
		}
		content = strings.Replace(content, before, after, 1)
	}
	return file, content
}

// mustDie runs the unit tests of a package, with one file replaced.
func mustDie(t *testing.T, pkg, file, content string) {
	t.Helper()
	dir := t.TempDir()
	replacement := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(replacement, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	at, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{at: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		t.Fatal(err)
	}
	// -failfast: the first failure is enough. Vet would reject code that the compiler accepts.
	out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-failfast", "-vet=off", "-timeout=10m", "./"+pkg).CombinedOutput()
	if err == nil {
		t.Error("it survived: no unit test of the package fails")
		return
	}
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "--- FAIL: ") || strings.HasPrefix(line, "panic: ") {
			t.Log(strings.TrimSpace(line))
			return
		}
	}
	t.Errorf("no test failed, but the run did: %v\n%s", err, out)
}
