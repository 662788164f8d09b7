package fieldtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
)

// out is the file with the descriptions, in the folder of the package.
const out = "fields.go"

// Check compares fields.go of the package under test with the comments of files: of each
// exported struct whose fields all have a name in JSON, a method SwaggerDoc. With update,
// it rewrites fields.go. types is how many structs there are at least.
func Check(t *testing.T, update bool, types int, files ...string) {
	t.Helper()
	var b bytes.Buffer
	described := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if b.Len() == 0 {
			fmt.Fprintf(&b, "// Code generated from the comments of %s by go test -run Described -update. DO NOT EDIT.\n\npackage %s\n", strings.Join(files, " and "), file.Name.Name)
		}
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			spec := decl.Specs[0].(*ast.TypeSpec)
			if fields, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() && inJSON(fields) {
				described++
				describe(&b, spec.Name.Name, decl.Doc, fields)
			}
		}
	}
	want, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if update {
		if err := os.WriteFile(out, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || described < types {
		t.Errorf("%s is not what the comments of %d types say: run go test -run Described -update in this folder", out, described)
	}
}

// inJSON reports whether all fields have a name in JSON.
func inJSON(fields *ast.StructType) bool {
	for _, f := range fields.Fields.List {
		if nameOf(f) == "" {
			return false
		}
	}
	return true
}

func nameOf(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
	return name
}

func describe(b *bytes.Buffer, name string, doc *ast.CommentGroup, fields *ast.StructType) {
	fmt.Fprintf(b, "\n// SwaggerDoc returns what the fields mean, by their JSON names.\nfunc (%s) SwaggerDoc() map[string]string {\n\treturn map[string]string{\n", name)
	fmt.Fprintf(b, "%q: %q,\n", "", sentence(doc))
	above := ""
	for _, f := range fields.Fields.List {
		// A comment may speak of several fields.
		if f.Doc != nil {
			above = sentence(f.Doc)
		}
		fmt.Fprintf(b, "%q: %q,\n", nameOf(f), above)
	}
	fmt.Fprint(b, "}\n}\n")
}

func sentence(doc *ast.CommentGroup) string {
	return strings.Join(strings.Fields(doc.Text()), " ")
}
