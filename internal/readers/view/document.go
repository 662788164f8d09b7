package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// Document is the readable form of a trace, a plan, findings or a comparison. It is plain data. Its texts
// may come from other users: each drawer escapes all of them.
type Document struct {
	Title  string
	Blocks []Block
}

// Block is a part of a Document. Its type determines how it is drawn.
type Block interface{ block() }

// Class is the meaning of a text, which determines its colour.
type Class string

// The classes.
const (
	Plain   Class = ""
	Good    Class = "ok"
	Warning Class = "warn"
	Bad     Class = "bad"
	Noted   Class = "note"
)

// Mark is a text with a class.
type Mark struct {
	Text  string
	Class Class
}

type (
	// Heading is the heading of the blocks that follow.
	Heading string

	// Line is a sentence. More is detail for programs and authors of policies; a terminal omits it.
	Line struct {
		Mark
		More string
	}

	// Said is a text of another author, such as an error. Its line breaks are kept.
	Said Mark

	// Callout is the most important sentence of a section. By and Href name its subject. A terminal omits
	// the callout if Stands is set, because the same words follow further below.
	Callout struct {
		Class          Class
		Head, By, Href string
		Text           string
		Stands         bool
	}

	// Facts are names with values, in order.
	Facts []Fact

	// List is a list of sentences under a heading.
	List struct {
		Heading string
		Items   []string
	}

	// Section describes one of several subjects. Its Verdict comes first on a page, and last on a terminal.
	// Below names the reason for the request, and Class is the CSS class of the section. Titled is set if
	// the Document's title equals the Heading.
	Section struct {
		Class, Below string
		Heading      string
		Titled       bool
		Verdict      Callout
		Blocks       []Block
	}

	// Outline lists the participants of a request, in order. A page draws their times, with Ticks as labels
	// of the time axis.
	Outline struct {
		ID    string
		Ticks []string
		Items []Item
	}

	// Items are the parts of a participant.
	Items []Item

	// Edits are changed fields. More counts the omitted ones.
	Edits struct {
		List []Edit
		More int
	}

	// Check is an expression and its result.
	Check struct {
		Verdict Mark
		// Place identifies the expression, Cost is its CEL cost, and Took its duration.
		Place, Cost, Took   string
		Expression, Message string
		// Because is the subexpression that makes the expression false, and Values are the values of its
		// parts.
		Because string
		Values  Facts
	}

	// Table has rows under titles. A terminal prints Said instead of the table, if Said is not nil.
	Table struct {
		Heading string
		Columns []Column
		Rows    []Row
		Said    []string
	}

	// Ranked are items, the most severe first. A terminal prints the first Full items with their contents,
	// the next Short items in one line each, and Rest instead of the others.
	Ranked struct {
		Heading     string
		Items       Items
		Full, Short int
		Rest        []string
	}

	// Together are blocks that a terminal prints without empty lines between them.
	Together []Block
)

func (Heading) block()  {}
func (Line) block()     {}
func (Said) block()     {}
func (Callout) block()  {}
func (Facts) block()    {}
func (List) block()     {}
func (Section) block()  {}
func (Outline) block()  {}
func (Items) block()    {}
func (Edits) block()    {}
func (Check) block()    {}
func (Table) block()    {}
func (Ranked) block()   {}
func (Together) block() {}

// Fact is a name and its value. A terminal joins the Phrases of facts into a sentence, and omits facts
// without a Phrase.
type Fact struct {
	Name, Text, Phrase string
	Class              Class
}

// Item is a participant of a request.
type Item struct {
	// Group and Again name the heading above the item. Consecutive items of the same group share the
	// heading.
	Group, Again string
	Name, Href   string
	// Object is the subject of the item, if the request has several objects.
	Object  string
	Verdict Mark
	Took    string
	Bar     *Bar
	// Remarks are short comments next to the name.
	Remarks []Mark
	// Quiet items only allowed the request. The Inside of Open items is shown at once; on a page, the Inside
	// of Folded items is shown on demand.
	Quiet, Open, Folded bool
	Inside              []Block
	Parts               Items
}

// Edit is an operation of a patch.
type Edit struct {
	Op, Path, From string
	// Field is the path in a readable form. Was and Is are values in JSON, empty if unknown.
	Field, Was, Is string
}

// notShown replaces a value that a trace omits.
const notShown = "(not shown)"

// Before returns the earlier value in a readable form; empty if there was none.
func (e Edit) Before() string {
	if e.Was == "" && e.Op == "remove" {
		return notShown
	}
	return value(e.Was)
}

// After returns the new value in a readable form; empty if there is none.
func (e Edit) After() string {
	switch {
	case e.From != "":
		return e.Op + " from " + e.From
	case e.Is == "" && e.Op != "remove":
		return notShown
	}
	return value(e.Is)
}

// maxValue bounds a value on a page, in bytes.
const maxValue = 2000

// value formats a JSON value, on several lines if it is long.
func value(text string) string {
	var indented bytes.Buffer
	if len(text) > 60 && json.Indent(&indented, []byte(text), "", "  ") == nil {
		text = indented.String()
	}
	return trace.Cut(text, maxValue)
}

// Column is a column of a Table.
type Column struct {
	Title string
	// Right columns have numbers, Wide columns names. On a narrow terminal, the cells of Bare columns are
	// written below their row.
	Right, Wide, Bare bool
}

// Row is a row of a Table.
type Row struct {
	ID    string
	Cells []Cell
	// Muted rows are less important. The Inside of Open rows is shown at once; a terminal and Markdown show
	// the Inside of Open rows only.
	Muted, Open bool
	Inside      []Block
}

// Cell is a cell of a Table, with one or several texts. Code is set for texts of other authors, and Badge for an
// outcome, which a page draws as a badge.
type Cell struct {
	Lines []string
	Href  string
	Badge bool
	Class Class
	Code  bool
	// Tag is a word behind the text.
	Tag  string
	Bars []Bar
}

// Bar is a part of a line that represents a time or a count.
type Bar struct {
	Left, Width float64
	Class       string
}

// barWidth is the width of a line, in units.
const barWidth = 1000

// NewBar returns the bar for n of at most most things.
func NewBar(n, most int, class string) Bar {
	return Bar{Width: float64(n) * barWidth / float64(max(most, 1)), Class: class}
}

// Note returns a plain sentence.
func Note(format string, args ...any) Line {
	return Line{Mark: Mark{fmt.Sprintf(format, args...), Plain}}
}

// Columns returns columns with these titles: the first one for names, the others for numbers.
func Columns(titles ...string) []Column {
	list := make([]Column, len(titles))
	for i, title := range titles {
		list[i] = Column{Title: title, Right: i > 0, Wide: i == 0}
	}
	return list
}

// Add adds a row of cells, bars and texts, and returns it.
func (t *Table) Add(cells ...any) *Row {
	row := Row{Cells: make([]Cell, len(cells))}
	for i, c := range cells {
		switch c := c.(type) {
		case Cell:
			row.Cells[i] = c
		case []Bar:
			row.Cells[i] = Cell{Bars: c}
		default:
			row.Cells[i] = Text(c)
		}
	}
	t.Rows = append(t.Rows, row)
	return &t.Rows[len(t.Rows)-1]
}

// Text returns a cell with a text of Gatehouse.
func Text(text any) Cell { return Cell{Lines: []string{fmt.Sprint(text)}} }

// Code returns a cell with texts of other authors.
func Code(lines ...string) Cell { return Cell{Lines: lines, Code: true} }

// Format writes the Document as text, html or markdown. Text is wrapped to the width of the terminal.
func (d *Document) Format(w io.Writer, format string) error {
	switch format {
	case "markdown":
		return d.Markdown(terminal.Exact(w))
	case "html":
		return d.HTML(terminal.Exact(w))
	}
	page := terminal.NewPage(w)
	d.Text(page)
	return page.Flush()
}

// Brief formats a duration in microseconds with three digits.
func Brief(micros int64) string {
	d := time.Duration(micros) * time.Microsecond
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.String()
}

// Seconds formats a number of seconds as a duration.
func Seconds(n float64) string { return (time.Duration(n * float64(time.Second))).String() }
