package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// Document is what a person sees of something: of a record, a plan, findings, or a comparison. It is
// plain data. The texts in it may come from others: a drawer escapes all of them.
type Document struct {
	Title  string
	Blocks []Block
}

// Block is a part of a Document. Its type says what it is.
type Block interface{ block() }

// Class says what a text stands for: it gives the text a colour.
type Class string

// The classes.
const (
	Plain   Class = ""
	Good    Class = "ok"
	Warning Class = "warn"
	Bad     Class = "bad"
	Noted   Class = "note"
)

// Mark is a text of a class.
type Mark struct {
	Text  string
	Class Class
}

type (
	// Heading begins a part.
	Heading string

	// Line is a sentence. More is what programs and authors of policies look for besides; a terminal
	// leaves it out.
	Line struct {
		Mark
		More string
	}

	// Said is a text of somebody else, such as an error, in its own lines.
	Said Mark

	// Callout is what a reader looks for first. By and Href name who it is about. A terminal leaves out
	// what Stands in its words further below.
	Callout struct {
		Class          Class
		Head, By, Href string
		Text           string
		Stands         bool
	}

	// Facts are what is known of something.
	Facts []Fact

	// List is sentences under a heading.
	List struct {
		Heading string
		Items   []string
	}

	// Section is what there is to say about one of several things, of which the Verdict comes first, and
	// last on a terminal. Below names what it is done for, and Class is the kind of a page's section. Titled
	// reports whether the title of the Document is the Heading, too.
	Section struct {
		Class, Below string
		Heading      string
		Titled       bool
		Verdict      Callout
		Blocks       []Block
	}

	// Outline is what took part in a request, in order. A page draws the times, of which Ticks are some.
	Outline struct {
		ID    string
		Ticks []string
		Items []Item
	}

	// Items are parts of something that took part in a request.
	Items []Item

	// Edits are fields that were changed. More counts those that are left out.
	Edits struct {
		List []Edit
		More int
	}

	// Check is an expression and what it said.
	Check struct {
		Verdict Mark
		// Place is which expression it is, Cost what it cost, and Took how long it took.
		Place, Cost, Took   string
		Expression, Message string
		// Because is the part that makes it false, and Values are those of its parts.
		Because string
		Values  Facts
	}

	// Table has rows under titles. A terminal shows what is Said in place of it, if that is not nil.
	Table struct {
		Heading string
		Columns []Column
		Rows    []Row
		Said    []string
	}

	// Ranked are items, the gravest first. A terminal shows what is inside of the first Full ones, the
	// next Short ones in a line each, and for the others the Rest.
	Ranked struct {
		Heading     string
		Items       Items
		Full, Short int
		Rest        []string
	}

	// Together are blocks that a terminal shows without space between them.
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

// Fact is a name and what it stands for. A terminal joins the Phrases of facts to a sentence, and leaves
// out facts without one.
type Fact struct {
	Name, Text, Phrase string
	Class              Class
}

// Item is something that took part in a request.
type Item struct {
	// Group and Again name the heading that it stands below, with all others in a row that have it.
	Group, Again string
	Name, Href   string
	// Object is what it was about, if the request is about several objects.
	Object  string
	Verdict Mark
	Took    string
	Bar     *Bar
	// Remarks are what there is to say in a few words.
	Remarks []Mark
	// Quiet items only let the request go on. Open ones show at once what is Inside; a page shows what is
	// inside of Folded ones when somebody asks.
	Quiet, Open, Folded bool
	Inside              []Block
	Parts               Items
}

// Edit is an operation of a patch.
type Edit struct {
	Op, Path, From string
	// Field is the path for people. Was and Is are values in JSON, empty where they are not known.
	Field, Was, Is string
}

// notShown stands for a value that a trace leaves out.
const notShown = "(not shown)"

// Before is what was there, for people; empty if nothing was.
func (e Edit) Before() string {
	if e.Was == "" && e.Op == "remove" {
		return notShown
	}
	return value(e.Was)
}

// After is what is there then, for people; empty if nothing is.
func (e Edit) After() string {
	switch {
	case e.From != "":
		return e.Op + " from " + e.From
	case e.Is == "" && e.Op != "remove":
		return notShown
	}
	return value(e.Is)
}

// maxValue is how much of a value is on a page, in bytes.
const maxValue = 2000

// value is a value of JSON, in lines if it is long.
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
	// Right columns have numbers, Wide ones names. A terminal writes cells of Bare ones below their
	// row where it is too narrow.
	Right, Wide, Bare bool
}

// Row is a row of a Table.
type Row struct {
	ID    string
	Cells []Cell
	// Muted rows are of less interest. Open ones show at once what is Inside; a terminal and Markdown
	// show what is Inside of these alone.
	Muted, Open bool
	Inside      []Block
}

// Cell is a text of a Table, or several. Code is a text of others, and Badge says what became of something.
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

// Bar is a part of a line: of a time, or of a number of things.
type Bar struct {
	Left, Width float64
	Class       string
}

// barWidth is how many units a bar is wide.
const barWidth = 1000

// NewBar is the bar of n things of so many.
func NewBar(n, most int, class string) Bar {
	return Bar{Width: float64(n) * barWidth / float64(max(most, 1)), Class: class}
}

// Note is a sentence.
func Note(format string, args ...any) Line {
	return Line{Mark: Mark{fmt.Sprintf(format, args...), Plain}}
}

// Columns are columns of these titles: the first one has names, and the others numbers.
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

// Text is a cell of text, and Code one of a text that others wrote.
func Text(text any) Cell { return Cell{Lines: []string{fmt.Sprint(text)}} }

// Code is a cell of texts that others wrote.
func Code(lines ...string) Cell { return Cell{Lines: lines, Code: true} }

// Format writes the Document as text, html or markdown. What a terminal shows fits it.
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

// Brief is a time of so many microseconds, in three digits.
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

// Seconds writes a number of seconds as a duration.
func Seconds(n float64) string { return (time.Duration(n * float64(time.Second))).String() }
