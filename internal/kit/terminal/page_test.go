package terminal

import (
	"bytes"
	"strings"
	"testing"
)

// page returns a page of some width.
func page(width int, colour bool) *Page {
	p := NewPage(&bytes.Buffer{})
	p.width, p.colour = width, colour
	return p
}

func TestColoursAreForPages(t *testing.T) {
	write := func(p *Page) string {
		if _, err := Fprintf(p, "%s: %-6s| %s\n", Paint(Red, "error\x1b[0m"), Paint(Bold, "ab"), "\x1b[31m\ufdd031mno\ufdd1"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Write([]byte("\x1b[31m\ufdd031mno\ufdd1")); err != nil {
			t.Fatal(err)
		}
		if _, err := Fprintf(p, "%s %s", Paint(Green, ""), Lines("\ufdd031mno\ufdd1")); err != nil {
			t.Fatal(err)
		}
		return p.text.String()
	}
	const rest = `| \x1b[31m\ufdd031mno\ufdd1` + "\n" + `\x1b[31m\ufdd031mno\ufdd1 \ufdd031mno\ufdd1`
	if got, want := write(page(0, false)), `error\x1b[0m: ab    `+rest; got != want {
		t.Errorf("without colours: %q\nwant %q", got, want)
	}
	if got, want := write(page(0, true)), "\x1b[31merror"+`\x1b[0m`+"\x1b[0m: \x1b[1mab    \x1b[0m"+rest; got != want {
		t.Errorf("with colours: %q\nwant %q", got, want)
	}
	var b bytes.Buffer
	if _, err := Fprintf(&b, "%s\n", Paint(Red, "a")); err != nil || b.String() != "a\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestWhereAPageGoesDecidesItsWidth(t *testing.T) {
	t.Setenv("COLUMNS", "")
	var b bytes.Buffer
	if p := NewPage(&b); p.Width() != 0 || p.colour {
		t.Errorf("a page for no terminal: %d, %t", p.Width(), p.colour)
	}
	for value, want := range map[string]int{"120": 120, "3": narrowest, "-1": 0, "wide": 0} {
		t.Setenv("COLUMNS", value)
		if got := NewPage(&b).Width(); got != want {
			t.Errorf("COLUMNS=%s: %d columns, want %d", value, got, want)
		}
	}
}

func TestTablesFit(t *testing.T) {
	table := NewTable(append(Titles("FIELD", "CHANGE"), Column{Title: "REQUEST", Below: true}, Column{Title: "AGE"}, Column{Title: "REMARKS", Bare: true})...)
	table.Row("spec.containers[1].image", "+ sidecar", "CREATE by alice", "3s", "rule 1")
	table.Row("metadata.labels", Paint(Green, "日本 -> b"), "", 7, "")
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, `FIELD                      CHANGE      REQUEST           AGE   REMARKS
spec.containers[1].image   + sidecar   CREATE by alice   3s    rule 1
metadata.labels            日本 -> b                     7
`},
		{72, `FIELD                      CHANGE      REQUEST           AGE   REMARKS
spec.containers[1].image   + sidecar   CREATE by alice   3s    rule 1
metadata.labels            日本 -> b                     7
`},
		{62, `FIELD                      CHANGE      REQUEST           AGE
spec.containers[1].image   + sidecar   CREATE by alice   3s
    rule 1
metadata.labels            日本 -> b                     7
`},
		{46, `FIELD                      CHANGE      AGE
spec.containers[1].image   + sidecar   3s
    request: CREATE by alice; rule 1
metadata.labels            日本 -> b   7
`},
		{34, `FIELD              CHANGE      AGE
spec.containers[   + sidecar   3s
1].image
    request: CREATE by alice; rule 1
metadata.labels    日本 -> b   7
`},
	} {
		p := page(c.width, false)
		if err := table.Print(p); err != nil {
			t.Fatal(err)
		}
		if got := p.text.String(); got != c.want {
			t.Errorf("%d columns:\n%s\nwant\n%s", c.width, got, c.want)
		}
	}
	// For all cells, nothing is lost, and no line is too long.
	long := strings.Repeat("averylongname-", 9) + " and more words " + strings.Repeat("x", 150)
	wide := NewTable(Titles("A", "B", "C", "D")...)
	wide.Row(long, "b", long, "")
	for width := 40; width < 400; width += 9 {
		p := page(width, false)
		if err := wide.Print(p); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(p.text.String()) {
			if Columns(strings.TrimSuffix(line, "\n")) > width || strings.HasSuffix(line, " \n") {
				t.Errorf("%d columns: %q", width, line)
			}
		}
		if got := strings.Count(p.text.String(), "x"); got != 300 {
			t.Errorf("%d columns: %d of 300 letters", width, got)
		}
	}
}

func TestWrapped(t *testing.T) {
	p := page(20, false)
	if got, want := p.Wrapped("one two three  four five averyveryverylongword", "  "), Lines("  one two three four\n  five\n  averyveryverylongword\n"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := page(0, false).Item(strings.Repeat("long\n", 30)), Lines("  - "+strings.Repeat(`long\n`, 30)+"\n"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := p.Item("one two three four"), Lines("  - one two three\n    four\n"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLongWordsAreBrokenAtTheirParts(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"spec.serviceAccountName", "spec.|serviceAccountName"},
		{"spec.preemptionPolicy", "spec.|preemptionPolicy"},
		{"DefaultTolerationSeconds", "DefaultToleration|Seconds"},
		{"DefaultTolerationSecs", "DefaultToleration|Secs"},
		{"spec.containers[name=web].image", "spec.containers[|name=web].image"},
		{"averyveryverylongwordofonepart", "averyveryverylongwor|dofonepart"},
		{"a.veryveryverylongwordofonepart", "a.veryveryverylongwo|rdofonepart"},
	} {
		if got := strings.Join(Broken(tt.text, 20), "|"); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
