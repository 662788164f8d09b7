package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the root of the tree, relative to this package. Each test changes to it, so that paths are relative
// to the root. A change of the directory before tests run would escape the cache of go test, which would find
// no change in the files that the tests read.
const root = "../.."

// modulePath is this module's path and, with a slash, the prefix of its packages.
const modulePath = "github.com/gatehouse-dev/gatehouse"

// walk calls visit for every file of the project with its path from the root. It skips links and the files of a
// version control system or a server (.git is a file in a worktree).
func walk(t *testing.T, visit func(file string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "gatehouse.data" || d.Name() == "gallery.data" || file == "bin") {
			return fs.SkipDir
		}
		if d.Type().IsRegular() && d.Name() != ".git" {
			visit(file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goFile is the data of a Go source file that the checks need.
type goFile struct {
	path string
	// name is the package clause, and imports the import paths.
	name    string
	imports []string
	// documented is set when the file has a package comment.
	documented bool
}

func (f goFile) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// separate are other modules in the tree whose packages the checks include: other projects import the first and
// copy the second. The modules for tools and benchmarks are not included.
var separate = []string{"gatehousetest", "examples/openshift"}

// packages reads the Go files of this module and of the separate modules, by their directory.
func packages(t *testing.T) map[string][]goFile {
	t.Helper()
	var modules []string
	var sources []string
	walk(t, func(file string) {
		switch {
		case path.Base(file) == "go.mod" && file != "go.mod" && !slices.Contains(separate, path.Dir(file)):
			modules = append(modules, path.Dir(file)+"/")
		case path.Ext(file) == ".go" && !slices.Contains(strings.Split(file, "/"), "testdata"):
			sources = append(sources, file)
		}
	})
	found := map[string][]goFile{}
	for _, file := range sources {
		if slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(file, m) }) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		found[path.Dir(file)] = append(found[path.Dir(file)], goFile{
			path: file, name: parsed.Name.Name, imports: importPaths(parsed), documented: parsed.Doc != nil,
		})
	}
	if len(found) == 0 {
		t.Fatal("no Go files found")
	}
	return found
}

func importPaths(f *ast.File) []string {
	paths := make([]string, len(f.Imports))
	for i, spec := range f.Imports {
		paths[i], _ = strconv.Unquote(spec.Path.Value)
	}
	return paths
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
