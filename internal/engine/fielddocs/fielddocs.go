package fielddocs

import (
	"embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"reflect"
	"strings"
	"sync"
)

// Docs has the comment of each field by the name of its type and its name in JSON. The comment of
// the type itself has the empty field name.
type Docs = map[string]map[string]string

// Of returns a function that returns the comments of the exported structs in the Go files of
// source. The files are read when the function is first called. It panics if a file is not valid
// Go, which the compiler would not have accepted.
func Of(source embed.FS) func() Docs {
	return sync.OnceValue(func() Docs {
		docs := Docs{}
		files, err := fs.Glob(source, "*.go")
		if err != nil {
			panic("fielddocs: " + err.Error())
		}
		for _, name := range files {
			text, err := source.ReadFile(name)
			if err != nil {
				panic("fielddocs: " + err.Error())
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
			if err != nil {
				panic(fmt.Sprintf("fielddocs: %s: %v", name, err))
			}
			for _, d := range file.Decls {
				if decl, ok := d.(*ast.GenDecl); ok && decl.Tok == token.TYPE {
					add(docs, decl)
				}
			}
		}
		return docs
	})
}

// add adds the comments of a declaration of types.
func add(docs Docs, decl *ast.GenDecl) {
	for _, s := range decl.Specs {
		spec, ok := s.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() {
			continue
		}
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}
		about := spec.Doc
		if about == nil {
			about = decl.Doc
		}
		docs[spec.Name.Name] = ofFields(fields, sentences(about))
	}
}

// ofFields returns the comments of the fields with a name in JSON. One comment may describe several
// fields, which then follow each other without a blank line.
func ofFields(fields *ast.StructType, about string) map[string]string {
	docs := map[string]string{"": about}
	above := ""
	for _, f := range fields.Fields.List {
		if f.Doc != nil {
			above = sentences(f.Doc)
		}
		if f.Tag == nil {
			continue
		}
		name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		if name != "" && name != "-" {
			docs[name] = above
		}
	}
	return docs
}

func sentences(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }
