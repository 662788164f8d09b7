package harness

import (
	"regexp"
	"testing"
)

var exampleReady = regexp.MustCompile(` is ready at (\S+.*)$`)

// StartExample builds and runs a program of the folder examples, until the test
// is over. It returns what the program says it is ready at.
func StartExample(t testing.TB, name string, args ...string) string {
	t.Helper()
	path, err := build("example-"+name, "./examples/"+name)
	if err != nil {
		t.Fatal(err)
	}
	p, match, err := startProcess(exampleReady, path, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return match[1]
}
