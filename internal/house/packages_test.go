package house

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// Exactly one file of a package has the package comment: doc.go, or main.go for a command.
func TestEveryPackageIsDocumentedInOnePlace(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	for _, pkg := range sorted(found) {
		files := slices.DeleteFunc(slices.Clone(found[pkg]), func(f goFile) bool { return strings.HasSuffix(f.name, "_test") })
		if len(files) == 0 {
			continue
		}
		allowed := []string{"doc.go"}
		if files[0].name == "main" {
			allowed = append(allowed, "main.go")
		}
		var documented []string
		for _, f := range files {
			if f.documented {
				documented = append(documented, path.Base(f.path))
			}
		}
		if len(documented) != 1 || !slices.Contains(allowed, documented[0]) {
			t.Errorf("%s: the package comment is in %v, want it in %s alone", pkg, documented, strings.Join(allowed, " or "))
		}
	}
}
