package terminal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// printed writes a text in parts of some size.
func printed(t *testing.T, text string, size int) string {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for rest := text; rest != ""; {
		part := rest[:min(size, len(rest))]
		if n, err := io.WriteString(w, part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
		rest = rest[len(part):]
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWhatActsIsShown(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[31mred\x1b[0m":            `\x1b[31mred\x1b[0m`,
		"bell\a back\b\x7f":             `bell\a back\b\x7f`,
		"100%\rdone":                    `100%\rdone`,
		"admin\u202etxt.exe":            `admin\u202etxt.exe`,
		"\u2066hidden\u2069":            `\u2066hidden\u2069`,
		"C1 \u009b31m":                  `C1 \u009b31m`,
		"line\u2028end":                 `line\u2028end`,
		"no text \xff\xc3":              `no text \xff\xc3`,
		"::error::no":                   `:\x3aerror::no`,
		"a\n  ::set-output name=a::b\n": "a\n  :\\x3aset-output name=a::b\n",
		"##[error]no ##vso[task] ##[a]": `##\x5berror]no ##vso\x5btask] ##\x5ba]`,
		"##teamcity[x] ###[x]":          `##teamcity\x5bx] ###\x5bx]`,
		"plain: a::b ## c [d]\n\té 日本 👩‍💻\n": "plain: a::b ## c [d]\n\té 日本 👩‍💻\n",
		"": "",
	} {
		for _, size := range []int{1, 2, 3, 1000} {
			if got := printed(t, text, size); got != want {
				t.Errorf("%q in parts of %d: %q\nwant %q", text, size, got, want)
			}
		}
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{"a": "a", "a\nb\r\n": `a\nb\r\n`, "a\tb\v\f\xff\x1b\u202e": `a\tb\v\f\xff\x1b\u202e`, "é 日本 👩‍💻": "é 日本 👩‍💻"} {
		if got := Line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

type kind string

type named struct{}

func (named) String() string { return "two\nlines" }

func TestFprintf(t *testing.T) {
	var b bytes.Buffer
	n, err := Fprintf(&b, "%s %v %-6s| %s %q %d %v %s\n", "a\nb", kind("c\td"), "e\n", named{}, "f\n", 7, errors.New("g\nh"), Indented("i\nj", "  "))
	want := `a\nb c\td e\n   | two\nlines "f\n" 7 g\nh i` + "\n  j\n"
	if err != nil || n != len(want) || b.String() != want {
		t.Errorf("got  %q, %d, %v\nwant %q", b.String(), n, err, want)
	}
	b.Reset()
	if _, err := Fprintf(&b, "%v %s %5d%%", nil, kind(""), 3); err != nil || b.String() != "<nil>      3%" {
		t.Errorf("got %q, %v", b.String(), err)
	}
}

func TestExact(t *testing.T) {
	var b bytes.Buffer
	if Exact(NewWriter(&b)) != io.Writer(&b) || Exact(&b) != io.Writer(&b) {
		t.Error("it is another writer")
	}
}

func FuzzWriter(f *testing.F) {
	f.Add("\x1b[0m ::error:: ##[x] \u202e \xff", uint8(3))
	f.Add("\n :\n:: #", uint8(1))
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		got := printed(t, text, 1+int(size))
		if got != printed(t, text, len(text)+1) {
			t.Errorf("it depends on the parts: %q", got)
		}
		if !utf8.ValidString(got) {
			t.Errorf("no text: %q", got)
		}
		safe := true
		for _, r := range text {
			safe = safe && (unicode.IsGraphic(r) || r == '\n' || r == '\t')
		}
		for _, r := range got {
			if !unicode.IsGraphic(r) && !strings.ContainsRune("\n\t\u200c\u200d", r) {
				t.Errorf("%q has %q", got, r)
			}
		}
		if line := Line(text); strings.ContainsAny(line, "\n\r\t\v\f") || !utf8.ValidString(line) || Line(line) != line {
			t.Errorf("%q as one line is %q", text, line)
		}
		for line := range strings.Lines(got) {
			if strings.HasPrefix(strings.TrimSpace(line), "::") {
				t.Errorf("a command: %q", line)
			}
			for _, begin := range []string{"##[", "##vso[", "##teamcity["} {
				if strings.Contains(strings.ToLower(line), begin) {
					t.Errorf("a command: %q", line)
				}
			}
		}
		if safe && utf8.ValidString(text) && !strings.ContainsAny(text, ":#") && got != text {
			t.Errorf("%q became %q", text, got)
		}
		if again := printed(t, got, 7); again != got {
			t.Errorf("%q became %q", got, again)
		}
	})
}
