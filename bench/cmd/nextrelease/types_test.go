package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTypeErrorsAreThoseOfTheMainModule(t *testing.T) {
	dir := t.TempDir()
	main := &struct{ Main bool }{true}
	var list strings.Builder
	for _, p := range []struct {
		listed
		text string
	}{
		{listed{ImportPath: "library"}, "package library\n\nfunc F() int { return undefined }\n\nvar broken missing\n"},
		{listed{ImportPath: "ours", Module: main, ImportMap: map[string]string{"vendored": "library"}}, "package ours\n\nimport \"vendored\"\n\nvar text string = library.F()\n\nvar text int\n"},
		{listed{ImportPath: "ours [ours.test]", Module: main}, "package ours\n\nimport \"gone\"\n\nvar _ = gone.X\n"},
	} {
		p.Dir, p.GoFiles = filepath.Join(dir, p.ImportPath), []string{"file.go"}
		if err := os.MkdirAll(p.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p.Dir, "file.go"), []byte(p.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(&list).Encode(p.listed); err != nil {
			t.Fatal(err)
		}
	}
	found, err := typeErrors(strings.NewReader(list.String()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = strings.TrimPrefix(found[i], dir+"/")
	}
	want := []string{
		"ours/file.go:7:5: text redeclared in this block",
		"ours/file.go:5:19: cannot use library.F() (value of type int) as string value in variable declaration",
		`ours [ours.test]/file.go:3:8: could not import gone (there is no package gone)`,
	}
	if !slices.Equal(found, want) {
		t.Errorf("errors:\n%s\nwant:\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}
