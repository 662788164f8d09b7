package pages

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// markdown collects a text in the Markdown of code hosts.
type markdown struct{ b strings.Builder }

// line writes a paragraph or a heading.
func (m *markdown) line(format string, args ...any) {
	fmt.Fprintf(&m.b, format+"\n\n", args...)
}

// item writes an item of a list, of which end is the last.
func (m *markdown) item(format string, args ...any) { fmt.Fprintf(&m.b, "- "+format+"\n", args...) }

func (m *markdown) end() { m.b.WriteString("\n") }

// head and row write a table.
func (m *markdown) head(cells ...string) {
	m.row(cells...)
	m.row(strings.Split(strings.Repeat("---\x00", len(cells)-1)+"---", "\x00")...)
}

func (m *markdown) row(cells ...string) { m.b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

// maxMarkdown is how much of a text is in a code span, in bytes.
const maxMarkdown = 500

// code is a text that somebody wrote, on one line, as a code span: nothing in it is markup, and it
// mentions nobody.
func code(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == '`':
			return '\''
		}
		return quiet(r)
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if text = strings.TrimSpace(trace.Cut(text, maxMarkdown)); text == "" {
		return ""
	}
	// A table ends a cell at each of these, in a code span, too.
	return "`" + strings.ReplaceAll(text, "|", "\\|") + "`"
}

// escaped is a text that somebody wrote, on one line, as itself.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(strings.ToValidUTF8(trace.Cut(text, maxMarkdown), "\uFFFD")), " ") {
		switch r = quiet(r); {
		case r == '<':
			b.WriteString("&lt;")
			continue
		case r == '@':
			// A code host tells people who are named so.
			b.WriteString("&#64;")
			continue
		case r == '#':
			b.WriteString("&#35;")
			continue
		case strings.ContainsRune("\\`*_{}[]()>!|~&", r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
