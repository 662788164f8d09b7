package gatehouse_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z]\w+$`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w+)\(`)
	filePath = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+/?$`)
)

// What the documents about the code say in code spans, a path or the name of a
// test, is there. The left side of a picture counts too.
func TestDocumentsNameWhatExists(t *testing.T) {
	tests, roots := map[string]bool{}, map[string]bool{}
	walk(t, func(file string) {
		root, _, _ := strings.Cut(file, "/")
		roots[root] = true
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
	})
	picture := regexp.MustCompile(`(?m)^ {4,6}([a-z]+(?:/[a-z]+)+) {2,}`)
	for _, document := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		named := 0
		for _, m := range append(codeSpan.FindAllSubmatch(text, -1), picture.FindAllSubmatch(text, -1)...) {
			span := string(m[1])
			root, _, _ := strings.Cut(span, "/")
			switch {
			case testName.MatchString(span):
				named++
				if !tests[span] {
					t.Errorf("%s names %s, and there is no such test", document, span)
				}
			case filePath.MatchString(span) && roots[root]:
				named++
				if _, err := os.Stat(path.Clean(span)); err != nil {
					t.Errorf("%s names a file that is not there: %v", document, err)
				}
			}
		}
		if named == 0 {
			t.Errorf("%s names nothing that could be checked", document)
		}
	}
}
