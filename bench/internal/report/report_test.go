package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteReplacesItsOwnSectionOnly(t *testing.T) {
	longer, large := "more than there was", strings.Repeat("much\n", 100)
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	for _, s := range []struct{ name, body string }{{"a", "first a"}, {"b", large + "the b"}, {"a", "second a\n" + longer}} {
		if err := Write(path, s.name, "Title of "+s.name, "go run ./"+s.name, s.body); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if !strings.HasPrefix(text, head) {
		t.Errorf("the file does not start with the head:\n%s", text)
	}
	if strings.Count(text, longer) != 1 || strings.Count(text, "<!-- end ") != 2 || !strings.HasSuffix(text, "the b\n<!-- end b -->\n") {
		t.Errorf("the longer section has not left the rest as it was:\n%s", text)
	}
	if strings.Contains(text, "first a") || strings.Count(text, "second a") != 1 || strings.Count(text, "the b") != 1 {
		t.Errorf("want the second a and the b, once each:\n%s", text)
	}
	if strings.Index(text, "second a") > strings.Index(text, "the b") {
		t.Errorf("the section has moved:\n%s", text)
	}
}
