package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestIgnoredFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		patterns string
		ignored  string
		read     string
	}{
		{"*.yml", "a.yml b/c.yml", "a.yaml b/c.yaml"},
		{"tests/", "tests/a.yaml b/tests/c/d.yaml", "tests.yaml b/testsuite/a.yaml"},
		{"/tests", "tests/a.yaml tests", "b/tests/a.yaml"},
		{"deploy/*/secret?.yaml", "deploy/a/secret1.yaml", "deploy/secret1.yaml deploy/a/b/secret1.yaml deploy/a/secret.yaml"},
		{"deploy/**/x.yaml", "deploy/x.yaml deploy/a/b/x.yaml", "x.yaml"},
		{"deploy/**", "deploy/x.yaml deploy/a/b/x.yaml", "x.yaml"},
		{"# all\n\n*.yaml\n!keep.yaml", "a.yaml", "keep.yaml b/keep.yaml"},
		{"a[0-9].yaml\nb[!0-9].yaml\nc\\*.yaml", "a1.yaml bx.yaml c*.yaml", "ax.yaml b1.yaml cd.yaml"},
		{"", "", "a.yaml"},
	} {
		ignore, err := NewIgnore(strings.Split(c.patterns, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(c.ignored) {
			if !ignore.Ignores(name, false) {
				t.Errorf("%q reads %s", c.patterns, name)
			}
		}
		for _, name := range strings.Fields(c.read) {
			if ignore.Ignores(name, false) {
				t.Errorf("%q ignores %s", c.patterns, name)
			}
		}
	}
	if _, err := NewIgnore([]string{"a["}); err == nil || !strings.Contains(err.Error(), `"a["`) {
		t.Errorf("a pattern that is none: %v", err)
	}
}

// write writes files below a directory.
func write(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatIsNotOfTheClusterIsNotRead(t *testing.T) {
	t.Chdir(t.TempDir())
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	write(t, ".", map[string]string{
		"deploy/a.yaml": object, "deploy/tests/b.yaml": object, "deploy/c.yml": object, "deploy/d/e.yaml": object, "deploy/d/f.yaml": object,
		".gatehouseignore": "c.yml\n", "deploy/d/.gatehouseignore": "/f.yaml\n",
		"deploy/snapshot.yaml":   "apiVersion: gatehouse.dev/v1alpha1\nkind: ClusterSnapshot\nitems: []\n",
		"deploy/report.json":     `{"apiVersion": "gatehouse.dev/v1alpha1", "kind": "CheckReport"}`,
		"deploy/.gatehouse.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: Configuration\n",
	})
	ignore, err := NewIgnore([]string{"tests"})
	if err != nil {
		t.Fatal(err)
	}
	set, err := ReadBut(ignore, []string{"deploy", "deploy/c.yml"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var read, notes []string
	for _, o := range set.Objects {
		read = append(read, filepath.ToSlash(o.File))
	}
	for _, n := range set.Notes {
		notes = append(notes, filepath.ToSlash(n.File)+": "+n.Message)
	}
	if want := []string{"deploy/a.yaml", "deploy/d/e.yaml"}; !slices.Equal(read, want) || len(set.Problems) > 0 {
		t.Errorf("%q, %v", read, set.Problems)
	}
	slices.Sort(notes)
	if want := []string{
		"deploy/c.yml: ignored", "deploy/c.yml: ignored", "deploy/d/f.yaml: ignored",
		"deploy/tests: ignored",
	}; !slices.Equal(notes, want) {
		t.Errorf("got %q\nwant %q", notes, want)
	}
}

func TestAcceptances(t *testing.T) {
	content := Parse("a.yaml", []byte(`# gatehouse: accept denied/policy/labels: nobody owns it
# gatehouse: accept invalid
apiVersion: v1
kind: ConfigMap
metadata:
  name: a # gatehouse: accept unknown-field: generated
  # gatehouse: accept deprecated:  until 2027

  labels: {}
---
kind: ConfigMap
apiVersion: v1 # gatehouse: accept denied: not yet
# gatehouse: accept
# not gatehouse: accept invalid: because
`))
	type row struct {
		line, from, to int
		rule, reason   string
	}
	var got []row
	for _, a := range content.Acceptances {
		got = append(got, row{a.Line, a.from, a.to, a.Rule, a.Reason})
	}
	if want := []row{
		{1, 3, 10, "denied/policy/labels", "nobody owns it"}, {2, 3, 10, "invalid", ""}, {6, 6, 6, "unknown-field", "generated"}, {7, 9, 9, "deprecated", "until 2027"}, {12, 11, 15, "denied", "not yet"},
	}; !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
