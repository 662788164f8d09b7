package trace

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

// The descriptions that OpenAPI has of a Record are the comments of json.go and json_policy.go.
func TestFieldsAreDescribedAsTheirCommentsSay(t *testing.T) {
	var decls []ast.Decl
	for _, name := range []string{"json.go", "json_policy.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		decls = append(decls, file.Decls...)
	}
	var b bytes.Buffer
	fmt.Fprint(&b, "// Code generated from the comments of json.go and json_policy.go by go test -run Described -update. DO NOT EDIT.\n\npackage trace\n")
	types := 0
	for _, d := range decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			continue
		}
		spec := decl.Specs[0].(*ast.TypeSpec)
		fields, ok := spec.Type.(*ast.StructType)
		if !ok || spec.Name.Name == "writer" || spec.Name.Name == "RecordOptions" {
			continue
		}
		types++
		fmt.Fprintf(&b, "\n// SwaggerDoc returns what the fields mean, by their JSON names.\nfunc (%s) SwaggerDoc() map[string]string {\n\treturn map[string]string{\n", spec.Name.Name)
		fmt.Fprintf(&b, "%q: %q,\n", "", sentence(decl.Doc))
		above := ""
		for _, f := range fields.Fields.List {
			// A comment may speak of several fields.
			if f.Doc != nil {
				above = sentence(f.Doc)
			}
			name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
			fmt.Fprintf(&b, "%q: %q,\n", name, above)
		}
		fmt.Fprint(&b, "}\n}\n")
	}
	want, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	const name = "fields.go"
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || types < 10 {
		t.Errorf("%s is not what the comments of %d types say: run go test ./admission/trace -run Described -update", name, types)
	}
}

func sentence(doc *ast.CommentGroup) string {
	return strings.Join(strings.Fields(doc.Text()), " ")
}
