package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"path/filepath"
	"runtime"
	"strings"
)

// listed is a package of go list -deps -test: the dependencies come first, and a package with its tests is a package
// of its own.
type listed struct {
	ImportPath, Dir   string
	GoFiles, CgoFiles []string
	ImportMap         map[string]string
	Module            *struct{ Main bool }
	Error             *struct{ Pos, Err string }
}

// typeErrors checks the types of the listed packages from their sources, which takes a minute instead of the build of
// Kubernetes. It returns the errors of the main module. Bodies of functions in other modules are not read.
func typeErrors(list io.Reader) ([]string, error) {
	var found []string
	files, done := token.NewFileSet(), map[string]*types.Package{"unsafe": types.Unsafe}
	for d := json.NewDecoder(list); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		own := p.Module != nil && p.Module.Main
		report := func(err error) {
			// An error that begins with a tab continues the one before.
			wrong, ok := errors.AsType[types.Error](err)
			if own && !(ok && strings.HasPrefix(wrong.Msg, "\t")) {
				found = append(found, err.Error())
			}
		}
		if p.Error != nil {
			report(fmt.Errorf("%s: %s", p.Error.Pos, p.Error.Err))
		}
		var parsed []*ast.File
		for _, name := range append(p.GoFiles, p.CgoFiles...) {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				report(err)
			}
			if file != nil {
				parsed = append(parsed, file)
			}
		}
		checker := types.Config{
			Importer: importer(func(path string) (*types.Package, error) {
				if mapped := p.ImportMap[path]; mapped != "" {
					path = mapped
				}
				if imported := done[path]; imported != nil {
					return imported, nil
				}
				return nil, fmt.Errorf("there is no package %s", path)
			}),
			IgnoreFuncBodies: !own, FakeImportC: true, Error: report, Sizes: types.SizesFor("gc", runtime.GOARCH),
		}
		// The function Error gets the errors; a package with errors is imported as far as it goes.
		path, _, _ := strings.Cut(p.ImportPath, " ")
		done[p.ImportPath], _ = checker.Check(path, files, parsed, nil)
	}
}

// importer is a function as types.Importer.
type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
