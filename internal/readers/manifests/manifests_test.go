package manifests_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// show formats a set with one line per element, with paths relative to dir.
func show(set *manifests.Set, dir string) string {
	var b strings.Builder
	at := func(file string, line int) string {
		if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsAbs(file) {
			file = filepath.ToSlash(rel)
		}
		return fmt.Sprintf("%s:%d", file, line)
	}
	relative := func(s string) string { return strings.ReplaceAll(s, dir+string(filepath.Separator), "") }
	for _, o := range set.Objects {
		metadata, _ := o.Content["metadata"].(map[string]any)
		fmt.Fprintf(&b, "object %s %v %v %v\n", at(o.File, o.Line), o.Content["apiVersion"], o.Content["kind"], metadata["name"])
	}
	for _, p := range set.Problems {
		level := "problem"
		if p.Warning {
			level = "warning"
		}
		fmt.Fprintf(&b, "%s %s %s\n", level, at(p.File, p.Line), relative(p.Message))
	}
	for _, n := range set.Notes {
		fmt.Fprintf(&b, "note %s %s\n", at(n.File, n.Line), relative(n.Message))
	}
	return b.String()
}

var update = flag.Bool("update", false, "write the expectations of testdata anew")

// Each case has files, and the expected result of reading their directory.
func TestReadsWhatIsInADirectory(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir, want := t.TempDir(), ""
			for _, f := range archive.Files {
				if f.Name == "read" {
					want = string(f.Data)
					continue
				}
				path := filepath.Join(dir, f.Name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, f.Data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			set, err := manifests.Read([]string{dir}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := show(set, dir)
			if *update {
				archive.Files[len(archive.Files)-1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
}

// Standard input is read like a file.
func TestReadsStandardInput(t *testing.T) {
	in := strings.NewReader("kind: A\napiVersion: v1\n---\n{\"apiVersion\":\"v1\",\"kind\":\"B\"}{\"apiVersion\":\"v1\",\n\"kind\":\"C\"}\n")
	set, err := manifests.Read([]string{manifests.Stdin}, in)
	if err != nil {
		t.Fatal(err)
	}
	want := "object standard input:1 v1 A <nil>\nobject standard input:4 v1 B <nil>\nobject standard input:4 v1 C <nil>\n"
	if diff := cmp.Diff(want, show(set, "")); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

// The place of a field is the place of its key. The place of a missing field is the place of its
// nearest parent.
func TestPlaces(t *testing.T) {
	file := `# first

apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata:
    annotations: {"a.b/c": x}
  spec:
    containers:
    - name: one
    - name: two
      image: &image i
`
	set, err := manifests.Read([]string{"-"}, strings.NewReader(file))
	if err != nil || len(set.Objects) != 1 {
		t.Fatal(err, set)
	}
	o := set.Objects[0]
	for _, tc := range []struct {
		path         string
		line, column int
	}{
		{"", 6, 3},
		{"spec", 10, 3},
		{"spec.containers[1].image", 14, 7},
		{"spec.containers[0].image", 12, 7},
		{"spec.containers[two].image", 14, 7},
		{"metadata.annotations[a.b/c]", 9, 19},
		{"status.phase", 6, 3},
		{"spec.containers[9]", 11, 5},
		{"spec..[[]", 10, 3},
	} {
		if line, column := o.Place(tc.path); line != tc.line || column != tc.column {
			t.Errorf("%q is at %d:%d, want %d:%d", tc.path, line, column, tc.line, tc.column)
		}
	}
}

func TestPathsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ path, want string }{
		{filepath.Join(dir, "missing.yaml"), "missing.yaml: no such file or directory"},
		{"", ": no such file or directory"},
	} {
		if _, err := manifests.Read([]string{tc.path}, nil); err == nil || !strings.HasSuffix(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %s", tc.path, err, tc.want)
		}
	}
}

// An unreadable part of a directory is a Problem, and the rest is read.
func TestUnreadablePartsOfADirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("good.yaml", "apiVersion: v1\nkind: A\n")
	if err := os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")); err != nil {
		t.Skip(err)
	}
	// A link to the directory itself is not followed.
	if err := os.Symlink(dir, filepath.Join(dir, "self")); err != nil {
		t.Fatal(err)
	}
	want := "object good.yaml:1 v1 A <nil>\nproblem loop.yaml:0 too many levels of symbolic links\n"
	if runtime.GOOS == "linux" && syscall.Geteuid() != 0 {
		if err := os.Mkdir(filepath.Join(dir, "closed"), 0o000); err != nil {
			t.Fatal(err)
		}
		want = "object good.yaml:1 v1 A <nil>\nproblem closed:0 permission denied\nproblem loop.yaml:0 too many levels of symbolic links\n"
	}
	set, err := manifests.Read([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, show(set, dir)); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

// A file that is named twice is read once.
func TestAFileIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: A\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	set, err := manifests.Read([]string{dir, file, filepath.Join(dir, ".", "a.yaml")}, nil)
	if err != nil || len(set.Objects) != 1 || len(set.Files) != 1 {
		t.Errorf("got %v objects of %v, %v", set.Objects, set.Files, err)
	}
}

// Endless or huge input is an error.
func TestHugeInputIsAnError(t *testing.T) {
	if _, err := manifests.Read([]string{"-"}, endless{}); err == nil || !strings.Contains(err.Error(), "standard input: has more than 256 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestAliasesOfALongTextAreAnError(t *testing.T) {
	aliases := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 100_000) + "*a]\n"
	for name, text := range map[string]string{"alone": aliases, "with a key that occurs twice": aliases + "a: 1\n"} {
		c := manifests.Parse("a.yaml", []byte("---\n"+text))
		if len(c.Problems) != 1 || c.Problems[0].Warning || c.Problems[0].Line != 1 || !strings.Contains(c.Problems[0].Message, "has more than 16 MiB after its aliases are expanded") {
			t.Errorf("%s: %+v", name, c.Problems)
		}
	}
}

// Too many documents are one error, in every syntax, and the paths count together.
func TestTooManyObjectsAreAnError(t *testing.T) {
	const most = 500
	if old := manifests.SetMost(t, most); old != 50_000 {
		t.Errorf("by default there may be %d documents", old)
	}
	const object = `{"apiVersion":"v1","kind":"A"}`
	repeat := func(n int, one, between string) string {
		return strings.TrimSuffix(strings.Repeat(one+between, n), between)
	}
	for name, text := range map[string]func(n int) string{
		"documents": func(n int) string { return repeat(n, "apiVersion: v1\nkind: A\n", "---\n") },
		"values":    func(n int) string { return repeat(n, object, "\n") },
		"a list": func(n int) string {
			return `{"apiVersion":"v1","kind":"List","items":[` + repeat(n, object, ",") + "]}"
		},
		"mistakes":  func(n int) string { return `{"apiVersion":"v1","kind":"List","items":[` + repeat(n, "1", ",") + "]}" },
		"no object": func(n int) string { return repeat(n, "a: b\n", "---\n") },
	} {
		set, err := manifests.Read([]string{"-"}, strings.NewReader(text(most)))
		if err != nil || len(set.Objects)+len(set.Problems)+len(set.Notes) != most {
			t.Errorf("%s: %v", name, err)
		}
		set, err = manifests.Read([]string{"-"}, strings.NewReader(text(most+1)))
		want := "standard input: with this file, there are more than 500 documents and elements of lists: name fewer files or directories, or split the file"
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v: %v", name, set != nil, err)
		}
		if name != "a list" {
			continue
		}
		one := manifests.Parse("a", []byte(text(most+1)))
		if len(one.Objects)+len(one.Notes) > 0 || len(one.Problems) != 1 || one.Problems[0].Message != "has more than 500 documents and elements of lists: split the file" {
			t.Errorf("%s: %d objects, %d problems", name, len(one.Objects), len(one.Problems))
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"a.json", "b.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(repeat(most/2+1, object, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := manifests.Read([]string{dir}, nil); err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, "b.json")+": with this file, there are more than 500 ") {
		t.Errorf("two files: %v", err)
	}
	// The ordinary run reads as much in TestHugeInputIsAnError.
	if !speed.IsLong() {
		return
	}
	for _, name := range []string{"a.json", "b.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("\n"), 128<<20+1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := manifests.Read([]string{dir}, nil); err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, "b.json")+": with this file, there are more than 256 MiB to read") {
		t.Errorf("two large files: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

// For every file, reading ends, and every place is a line of the file.
func FuzzRead(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: A\nspec:\n- {a: b}\n---\n# x\n--- {}\n"), "spec[0].a")
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"A"}, 3]}{`), "items[0]")
	f.Add([]byte("a: &a [*a]\napiVersion: v1\nkind: B\n"), "a[0][0][0]")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		set, err := manifests.Read([]string{"-"}, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Count(data, []byte("\n")) + 1
		for _, o := range set.Objects {
			if line, column := o.Place(path); line < 1 || line > lines || column < 1 {
				t.Errorf("%q is at %d:%d of %d lines", path, line, column, lines)
			}
		}
		for _, p := range set.Problems {
			if p.Line < 0 || p.Line > lines {
				t.Errorf("problem at line %d of %d: %s", p.Line, lines, p.Message)
			}
		}
	})
}
