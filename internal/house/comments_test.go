package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"testing"
)

// named are the places of a package comment that name something of the package: a name in
// brackets or parentheses, or between backquotes.
var named = regexp.MustCompile("[(\\[`]([A-Z][A-Za-z0-9]*(?:\\.[A-Z][A-Za-z0-9]*)?)[)\\]`]")

// wordsInBrackets matches words in brackets of package comments that are not Go names.
var wordsInBrackets = regexp.MustCompile(`^(S\d+(\.\d+)?|[A-Z]+|[A-Z]+\d+)$`)

// Names in package comments exist: a type, a function, a method, a field, a constant or a variable of the
// package, or of a package that the comment names.
func TestPackageCommentsNameWhatExists(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	names := 0
	for _, pkg := range sorted(found) {
		doc, declared := "", map[string]bool{}
		for _, file := range found[pkg] {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file.path), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if base := path.Base(file.path); base == "doc.go" || base == "main.go" {
				doc += parsed.Doc.Text()
			}
			declare(parsed, declared)
		}
		for _, m := range named.FindAllStringSubmatch(doc, -1) {
			if wordsInBrackets.MatchString(m[1]) {
				continue
			}
			names++
			if !declared[m[1]] {
				t.Errorf("%s: the package comment names %s, and the package has nothing of that name", pkg, m[1])
			}
		}
	}
	if names < 20 {
		t.Errorf("only %d names were found in package comments", names)
	}
}

// declare adds the names that a file declares: X, and T.X for methods and fields.
func declare(file *ast.File, declared map[string]bool) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			declared[d.Name.Name] = true
			if d.Recv != nil {
				declared[typeName(d.Recv.List[0].Type)+"."+d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						declared[name.Name] = true
					}
				case *ast.TypeSpec:
					declared[s.Name.Name] = true
					ast.Inspect(s.Type, func(n ast.Node) bool {
						if f, ok := n.(*ast.Field); ok {
							for _, name := range f.Names {
								declared[name.Name], declared[s.Name.Name+"."+name.Name] = true, true
							}
						}
						return true
					})
				}
			}
		}
	}
}
