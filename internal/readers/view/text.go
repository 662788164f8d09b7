package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// maxTextValue bounds a value on a line of a terminal, in bytes.
const maxTextValue = 200

// colours are the terminal colours of the classes.
var colours = map[Class]terminal.Colour{Good: terminal.Green, Warning: terminal.Yellow, Bad: terminal.Red}

// Level returns the level of a finding in its terminal colour.
func Level(level report.Level) terminal.Painted {
	colours := map[report.Level]terminal.Colour{report.Error: terminal.Red, report.Warning: terminal.Yellow, report.Note: terminal.Cyan}
	return terminal.Paint(colours[level], string(level))
}

// Outcome returns the outcome of a request in its terminal colour, with the response if the API server refused an
// allowed request.
func Outcome(r *trace.Record) terminal.Painted {
	return terminal.Paint(colours[outcomeClass(r)], OutcomeText(r))
}

// OutcomeText returns the outcome of a request, with the response if the API server refused an allowed request, such
// as "Allowed, then 422 Invalid".
func OutcomeText(r *trace.Record) string {
	if r.Refused() {
		return string(r.Outcome) + ", then " + r.Response.String()
	}
	return string(r.Outcome)
}

// diffColours are the terminal colours of the lines of a diff, by class.
var diffColours = map[string]terminal.Colour{"add": terminal.Green, "del": terminal.Red, "at": terminal.Cyan}

// Text writes the Document to a terminal. Control characters are made visible.
func (d *Document) Text(p *terminal.Page) {
	t := &text{page: p}
	t.apart(d.Blocks)
}

// text writes blocks to a terminal.
type text struct {
	page  *terminal.Page
	begun bool
}

// gap writes an empty line between blocks.
func (t *text) gap() {
	if t.begun {
		t.page.Write([]byte("\n"))
	}
	t.begun = true
}

// apart writes blocks with an empty line between them.
func (t *text) apart(blocks []Block) {
	for _, b := range blocks {
		switch b := b.(type) {
		case Outline:
			for i := range b.Items {
				t.gap()
				t.item(&b.Items[i], "")
			}
		case Section:
			for _, head := range []string{b.Below, b.Heading} {
				if head != "" {
					t.gap()
					t.put("", "", Mark{head, Plain}, "")
				}
			}
			t.apart(append(b.Blocks, b.Verdict))
		case Callout:
			if !b.Stands {
				t.gap()
				t.block(b, "")
			}
		case Ranked:
			t.ranked(&b)
		case Findings:
			if len(b) > 0 {
				t.gap()
				t.block(b, "")
			}
		case Source:
			// A terminal does not draw it.
		case Facts:
			if slices.ContainsFunc(b, func(f Fact) bool { return f.Phrase != "" }) {
				t.gap()
				t.block(b, "")
			}
		default:
			t.gap()
			t.block(b, "")
		}
	}
}

func (t *text) blocks(blocks []Block, indent string) {
	for _, b := range blocks {
		t.block(b, indent)
	}
}

// block writes a block with an indent before each line.
func (t *text) block(b Block, indent string) {
	switch b := b.(type) {
	case Heading:
		t.put(indent, "", Mark{string(b), Plain}, "")
	case Line:
		t.put(indent, "", Mark{b.Text, Plain}, "")
	case Said:
		t.put(indent, "", Mark{b.Text, Plain}, "")
	case Callout:
		head := strings.TrimSpace(b.Head + " " + b.By)
		if b.Text == "" {
			t.put(indent, "", Mark{head + ".", b.Class}, "")
		} else {
			t.put(indent, "", Mark{head, b.Class}, ": "+b.Text)
		}
	case Facts:
		t.facts(b, indent)
	case List:
		if len(b.Items) == 0 {
			return
		}
		t.put(indent, b.Heading, Mark{}, ":")
		for _, item := range b.Items {
			terminal.Fprintf(t.page, "%s", t.page.Item(item))
		}
	case Items:
		for i := range b {
			t.item(&b[i], indent)
		}
	case Edits:
		for i := range b.List {
			t.put(indent, "", Mark{b.List[i].operation(), Plain}, "")
		}
		if b.More > 0 {
			t.put(indent, "", Note("%d more fields were changed", b.More).Mark, "")
		}
	case Check:
		if b.Expression == "" {
			// An expression that holds needs no more lines.
			return
		}
		t.put(indent, "", b.Verdict, ", "+b.Cost+": "+b.Expression)
		if b.Because != "" {
			t.put(indent+"  ", "because this is false: ", Mark{b.Because, Plain}, "")
		}
		for _, v := range b.Values {
			t.put(indent+"  ", v.Name, Mark{}, " = "+v.Text)
		}
	case Table:
		t.table(b, indent)
	case Together:
		t.blocks(b, indent)
	case Findings:
		for i := range b {
			f := &b[i]
			text := ": " + f.Text()
			if f.Object != "" {
				text = ": " + f.Object + text
			}
			terminal.Fprintf(t.page, "%s: %s%s %s\n", cmp.Or(f.Place(), "cluster"), Level(f.Level), terminal.Indented(text, "    "), terminal.Paint(terminal.Faint, "["+f.Rule+"]"))
		}
	case Diff:
		t.put(indent, "", Mark{b.Heading, Plain}, "")
		for _, line := range b.Lines() {
			if colour := diffColours[line.Class]; colour != "" {
				terminal.Fprintf(t.page, "    %s\n", terminal.Paint(colour, line.Text))
			} else {
				terminal.Fprintf(t.page, "    %s\n", line.Text)
			}
		}
		for _, text := range b.Notes {
			t.put("    ", "", Mark{text, Plain}, "")
		}
	}
}

// ranked writes the items with decreasing detail, and then Rest.
func (t *text) ranked(b *Ranked) {
	for i := range b.Items[:min(len(b.Items), b.Full)] {
		t.gap()
		t.item(&b.Items[i], "")
	}
	if len(b.Items) <= b.Full || len(b.Rest) == 0 {
		return
	}
	t.gap()
	for _, i := range b.Items[b.Full:min(len(b.Items), b.Full+b.Short)] {
		i.Inside = nil
		t.item(&i, "")
	}
	for _, text := range b.Rest {
		t.put("", "", Mark{text, Plain}, "")
	}
}

// facts writes facts as sentences. A fact without a name ends a sentence.
func (t *text) facts(list Facts, indent string) {
	var parts []string
	var first Class
	end := func() {
		if len(parts) > 0 {
			rest := strings.Join(parts[1:], ", ")
			if rest != "" {
				rest = ", " + rest
			}
			t.put(indent, "", Mark{parts[0], first}, rest)
		}
		parts = nil
	}
	for _, f := range list {
		switch {
		case f.Name == "":
			end()
		case f.Phrase != "":
			if len(parts) == 0 {
				first = f.Class
			}
			parts = append(parts, terminal.Line(f.Phrase))
		}
	}
	end()
}

// item writes an item, its contents and its parts.
func (t *text) item(i *Item, indent string) {
	var head, tail []string
	for _, s := range []string{i.Group, i.Name, i.Again, i.Object} {
		if s != "" {
			head = append(head, terminal.Line(s))
		}
	}
	if i.Took != "" {
		tail = append(tail, i.Took)
	}
	for _, r := range i.Remarks {
		tail = append(tail, terminal.Line(r.Text))
	}
	rest := strings.Join(tail, ", ")
	if i.Verdict.Text != "" && rest != "" {
		rest = ", " + rest
	}
	lead := strings.Join(head, ", ")
	if i.Verdict.Text+rest != "" {
		lead += ": "
	}
	t.put(indent, lead, i.Verdict, rest)
	t.blocks(i.Inside, indent+"  ")
	for k := range i.Parts {
		t.item(&i.Parts[k], indent+"  ")
	}
}

// operation formats a patch operation on one line.
func (e *Edit) operation() string {
	s := e.Op + " " + e.Path
	if e.From != "" {
		s += " from " + e.From
	}
	if e.Is != "" {
		s += " " + trace.Cut(e.Is, maxTextValue)
	}
	if e.Was != "" {
		s += " (was " + trace.Cut(e.Was, maxTextValue) + ")"
	}
	return s
}

// leastText is the minimum width for wrapping text.
const leastText = 20

// put writes one text of three parts; mark is coloured. Lines are wrapped to the terminal. All lines except the
// first are indented further, so that they cannot imitate lines of the program itself.
func (t *text) put(indent, lead string, mark Mark, rest string) {
	inside := indent + "    "
	var lines []string
	for line := range strings.SplitSeq(lead+mark.Text+rest, "\n") {
		if width := t.page.Width(); width > 0 {
			lines = append(lines, terminal.Broken(line, max(width-len(indent)-4, leastText))...)
		} else {
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		var first any = terminal.Lines("")
		if begin := lead + mark.Text; i == 0 && colours[mark.Class] != "" && strings.HasPrefix(line, begin) {
			first, line = terminal.Paint(colours[mark.Class], mark.Text), line[len(begin):]
			indent += lead
		}
		terminal.Fprintf(t.page, "%s%s%s\n", terminal.Lines(indent), first, terminal.Lines(line))
		if i == 0 {
			indent = inside
		}
	}
}

// table writes a table, then the contents of its open rows.
func (t *text) table(b Table, indent string) {
	for _, text := range b.Said {
		t.put(indent, "", Mark{text, Plain}, "")
	}
	if b.Said != nil {
		return
	}
	columns := make([]terminal.Column, len(b.Columns))
	for i, c := range b.Columns {
		columns[i] = terminal.Column{Title: strings.ToUpper(c.Title), Bare: c.Bare}
	}
	table := terminal.NewTable(columns...)
	table.Gap = 2
	for _, row := range b.Rows {
		cells := make([]any, len(columns))
		for i, c := range row.Cells {
			cells[i] = strings.Join(c.Lines, "; ")
		}
		table.Row(cells...)
	}
	// Writes to a Page do not fail.
	_ = table.Print(t.page)
	for _, row := range b.Rows {
		if row.Open && len(row.Inside) > 0 {
			t.gap()
			t.put(indent, row.ID, Mark{}, ":")
			t.blocks(row.Inside, indent+"  ")
		}
	}
}
