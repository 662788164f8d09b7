package house

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// graph has the imports of each package of this module, of its tests, and of all dependencies. A test program has
// the name of its package with ".test" at the end.
type graph map[string][]string

// imports lists the graph once for all tests, with the tag of our builds.
func imports(t *testing.T) graph {
	t.Helper()
	g, err := listImports()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

var listImports = sync.OnceValues(func() (graph, error) {
	var complaints strings.Builder
	cmd := exec.Command("go", "list", "-tags=kustomize_disable_go_plugin_support", "-deps", "-test", "-json=ImportPath,Imports", "./...")
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, complaints.String())
	}
	g := graph{}
	for list := json.NewDecoder(bytes.NewReader(out)); list.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := list.Decode(&p); err != nil {
			return nil, err
		}
		g[p.ImportPath] = p.Imports
	}
	return g, nil
})

// closure returns the packages, and all packages that they import directly or indirectly. It takes a package
// that was compiled for a test as the package itself.
func (g graph) closure(packages ...string) map[string]bool {
	seen := map[string]bool{}
	for len(packages) > 0 {
		pkg := packages[len(packages)-1]
		packages = packages[:len(packages)-1]
		if !seen[pkg] {
			seen[pkg] = true
			packages = append(packages, g[pkg]...)
		}
	}
	found := map[string]bool{}
	for pkg := range seen {
		name, _, _ := strings.Cut(pkg, " ")
		found[name] = true
	}
	return found
}

// below returns the packages of a tree, without their tests.
func (g graph) below(tree string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(g)), func(pkg string) bool {
		return !in(pkg, tree) || strings.Contains(pkg, " ") || strings.HasSuffix(pkg, ".test") || strings.HasSuffix(pkg, "_test")
	})
}

func TestClosure(t *testing.T) {
	t.Parallel()
	g := graph{"a": {"b"}, "b": {"c"}, "a.test": {"a [a.test]", "d"}, "a [a.test]": {"b"}, "d": {"d/e"}, "c": {"b"}}
	if got := slices.Sorted(maps.Keys(g.closure("a"))); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("a reaches %v", got)
	}
	if got := slices.Sorted(maps.Keys(g.closure("a.test"))); !slices.Equal(got, []string{"a", "a.test", "b", "c", "d", "d/e"}) {
		t.Errorf("the tests of a reach %v", got)
	}
	if got := g.below("a"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("below a are %v", got)
	}
}
