package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// Markdown writes the Document for job summaries and pull requests.
func (d *Document) Markdown(w io.Writer) error {
	m := &markdown{}
	m.put(0, "# "+escaped(d.Title))
	m.blocks(d.Blocks, 0)
	_, err := io.WriteString(w, m.b.String())
	return err
}

// markdown builds a text in GitHub Flavored Markdown.
type markdown struct{ b strings.Builder }

// put writes a paragraph at depth 0, otherwise a list item.
func (m *markdown) put(depth int, text string) {
	if depth == 0 {
		m.b.WriteString(text + "\n\n")
		return
	}
	m.b.WriteString(strings.Repeat("  ", depth-1) + "- " + text + "\n")
}

// end ends a list or a table.
func (m *markdown) end(depth int) {
	if depth == 0 {
		m.b.WriteString("\n")
	}
}

func (m *markdown) blocks(blocks []Block, depth int) {
	for _, b := range blocks {
		m.block(b, depth)
	}
}

// maxEdits bounds the changes of a patch in Markdown.
const maxEdits = 20

func (m *markdown) block(b Block, depth int) {
	switch b := b.(type) {
	case Heading:
		m.put(0, "## "+escaped(string(b)))
	case Line:
		more := ""
		if b.More != "" {
			more = " (" + escaped(b.More) + ")"
		}
		m.put(depth, escaped(b.Text)+more)
	case Said:
		m.put(depth, code(b.Text))
	case Callout:
		text := "**" + escaped(b.Head)
		if b.By != "" {
			text += " " + code(b.By)
		}
		if b.Text == "" {
			m.put(depth, text+".**")
		} else {
			m.put(depth, text+":** "+code(b.Text))
		}
	case Facts:
		m.facts(b, depth)
	case List:
		m.put(depth, escaped(b.Heading)+":")
		for _, item := range b.Items {
			m.put(depth+1, code(item))
		}
		m.end(depth)
	case Section:
		if b.Below != "" {
			m.put(depth, escaped(b.Below))
		}
		if b.Heading != "" && !b.Titled {
			m.block(Heading(b.Heading), depth)
		}
		m.blocks(append([]Block{b.Verdict}, b.Blocks...), depth)
	case Outline:
		for _, row := range b.rows() {
			if row.Heading != "" {
				m.put(1, "**"+escaped(row.Heading)+"**")
			} else if !row.Child {
				m.item(row.Item, 2)
			}
		}
		m.end(0)
	case Items:
		for i := range b {
			m.item(&b[i], depth)
		}
	case Edits:
		m.edits(b, depth)
	case Check:
		m.check(&b, depth)
	case Table:
		m.table(b)
	case Ranked:
		m.block(Heading(b.Heading), depth)
		m.block(b.Items, depth+1)
		m.end(depth)
	case Together:
		m.blocks(b, depth)
	case Sums:
		sums := make([]string, len(b))
		for i, s := range b {
			sums[i] = fmt.Sprintf("**%d** %s", s.N, escaped(s.Name))
		}
		m.put(depth, strings.Join(sums, ", "))
	case Findings:
		table := Table{Columns: Columns("level", "where", "what", "rule")}
		for i := range b {
			f := &b[i]
			table.Add(f.Level, Code(nonEmpty(f.Place(), f.Object)...), Code(nonEmpty(f.Text(), f.Remedy)...), Code(f.Rule))
		}
		m.table(table)
	case Diff:
		m.put(depth, escaped(b.Heading)+":")
		for _, line := range b.Lines() {
			m.put(depth+1, code(line.Text))
		}
		m.end(depth)
	}
}

// nonEmpty returns the texts that are not empty.
func nonEmpty(list ...string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// facts writes facts as a list, or on one line within an item.
func (m *markdown) facts(b Facts, depth int) {
	var list []string
	for _, f := range b {
		switch {
		case f.Name == "":
		case f.Class != Plain:
			list = append(list, escaped(f.Name)+": **"+escaped(f.Text)+"**")
		default:
			list = append(list, escaped(f.Name)+": "+code(f.Text))
		}
	}
	if depth > 0 {
		m.put(depth, strings.Join(list, ", "))
		return
	}
	for _, text := range list {
		m.put(1, text)
	}
	m.end(0)
}

// edits writes the changes of a patch.
func (m *markdown) edits(b Edits, depth int) {
	for i := range b.List[:min(len(b.List), maxEdits)] {
		e := &b.List[i]
		text := escaped(e.Op) + " " + code(e.Field)
		for _, value := range []struct{ word, text string }{{" from ", e.From}, {" ", e.Is}, {" was ", e.Was}} {
			if value.text != "" {
				text += value.word + code(value.text)
			}
		}
		m.put(depth, text)
	}
	if more := len(b.List) - maxEdits + b.More; more > 0 {
		m.put(depth, fmt.Sprintf("%d more fields were changed", more))
	}
}

// check writes an expression and its result.
func (m *markdown) check(b *Check, depth int) {
	text := "**" + escaped(b.Verdict.Text) + "**"
	for _, s := range []string{b.Place, b.Cost, b.Took} {
		if s != "" {
			text += ", " + escaped(s)
		}
	}
	if b.Expression != "" {
		text += ": " + code(b.Expression)
	}
	m.put(depth, text)
	if b.Message != "" {
		m.put(depth+1, code(b.Message))
	}
	if b.Because != "" {
		m.put(depth+1, "because this is false: "+code(b.Because))
	}
	for _, v := range b.Values {
		m.put(depth+1, code(v.Name)+" = "+code(v.Text))
	}
}

// item writes an item, its contents and its parts.
func (m *markdown) item(i *Item, depth int) {
	name := escaped(i.Name)
	if i.Bar != nil {
		name = code(i.Name)
	}
	if i.Object != "" {
		name += ", " + code(i.Object)
	}
	var parts []string
	if i.Verdict.Text != "" {
		parts = append(parts, "**"+escaped(i.Verdict.Text)+"**")
	}
	if i.Took != "" {
		parts = append(parts, i.Took)
	}
	for _, r := range i.Remarks {
		parts = append(parts, escaped(r.Text))
	}
	if len(parts) > 0 {
		name += ": " + strings.Join(parts, ", ")
	}
	m.put(depth, name)
	m.blocks(i.Inside, depth+1)
	for k := range i.Parts {
		m.item(&i.Parts[k], depth+1)
	}
}

// table writes a table, then the contents of its open rows.
func (m *markdown) table(b Table) {
	if b.Heading != "" {
		m.block(Heading(b.Heading), 0)
	}
	var titles, line []string
	for i, c := range b.Columns {
		if len(b.Rows) == 0 || b.Rows[0].Cells[i].Bars == nil {
			titles, line = append(titles, strings.ToLower(c.Title)), append(line, "---")
		}
	}
	m.row(titles)
	m.row(line)
	for _, row := range b.Rows {
		var cells []string
		for _, c := range row.Cells {
			if c.Bars != nil {
				continue
			}
			lines := make([]string, len(c.Lines))
			for k, text := range c.Lines {
				if lines[k] = escaped(text); c.Code {
					lines[k] = code(text)
				}
			}
			text := strings.Join(lines, "<br>")
			if c.Tag != "" {
				text += " " + escaped(c.Tag)
			}
			cells = append(cells, text)
		}
		m.row(cells)
	}
	m.end(0)
	for _, row := range b.Rows {
		if row.Open && len(row.Inside) > 0 {
			m.put(1, code(row.ID))
			m.blocks(row.Inside, 2)
			m.end(0)
		}
	}
}

func (m *markdown) row(cells []string) { m.b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

// maxMarkdown bounds the text of a code span, in bytes.
const maxMarkdown = 500

// code puts a text of another author into a code span, on one line: nothing in it is markup, and no
// user is mentioned.
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
	// This character ends a table cell even in a code span.
	return "`" + strings.ReplaceAll(text, "|", "\\|") + "`"
}

// escaped escapes a text of another author, on one line.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(strings.ToValidUTF8(trace.Cut(text, maxMarkdown), "\uFFFD")), " ") {
		switch r = quiet(r); {
		case r == '<':
			b.WriteString("&lt;")
			continue
		case r == '@':
			// Code hosts notify users after this character.
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
