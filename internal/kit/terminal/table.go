package terminal

import (
	"fmt"
	"io"
	"strings"
)

// Column is a column of a Table.
type Column struct {
	Title string
	// Below moves the cells below their rows if the table is wider than the page, each after its
	// title; Bare does so without the title.
	Below, Bare bool
	// Whole keeps the cells unbroken, for names that people copy.
	Whole bool
}

// Table is text in columns, with a line of titles. If it is wider than the page, some columns move
// below their rows, and long cells of the others are broken.
type Table struct {
	// Gap is the space between columns; 0 means 3.
	Gap     int
	columns []Column
	rows    [][]cell
}

type cell struct {
	text   string
	colour Colour
}

// NewTable returns a table without rows.
func NewTable(columns ...Column) *Table { return &Table{columns: columns} }

// Titles returns columns that stay in their rows.
func Titles(titles ...string) []Column {
	columns := make([]Column, len(titles))
	for i, title := range titles {
		columns[i].Title = title
	}
	return columns
}

// Row adds a row: a cell for each column, which may be Painted. Each is one Line.
func (t *Table) Row(cells ...any) {
	row := make([]cell, len(t.columns))
	for i := range row {
		switch c := cells[i].(type) {
		case Painted:
			row[i] = cell{Line(c.text), c.colour}
		default:
			row[i].text = Line(fmt.Sprint(c))
		}
	}
	t.rows = append(t.rows, row)
}

// leastColumn is the minimum width of a narrowed column.
const leastColumn = 8

// Print writes the table: to a Page in the width of the page, otherwise in the width of its cells.
func (t *Table) Print(w io.Writer) error {
	gap := t.Gap
	if gap == 0 {
		gap = 3
	}
	most := 0
	if page, ok := w.(*Page); ok {
		most = page.width
	}
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = Columns(c.Title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], Columns(row[i].text))
		}
	}
	below := make([]bool, len(t.columns))
	total := func() int {
		n := -gap
		for i := range widths {
			if !below[i] {
				n += widths[i] + gap
			}
		}
		return n
	}
	for i := len(t.columns) - 1; i >= 0 && most > 0 && total() > most; i-- {
		below[i] = t.columns[i].Below || t.columns[i].Bare
	}
	if over := total() - most; most > 0 && over > 0 {
		t.narrow(widths, below, over)
	}
	titles := make([]cell, len(t.columns))
	for i, c := range t.columns {
		titles[i] = cell{c.Title, Bold}
	}
	for i, row := range append([][]cell{titles}, t.rows...) {
		if err := printRow(w, row, widths, below, gap); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		if text := t.moved(row, below); text != "" {
			if _, err := Fprintf(w, "%s", Wrapped(text, "    ", max(most, narrowest))); err != nil {
				return err
			}
		}
	}
	return nil
}

// narrow reduces the widths of the widest columns, until the sum is reduced by over or all columns
// are narrow.
func (t *Table) narrow(widths []int, below []bool, over int) {
	for ; over > 0; over-- {
		widest := -1
		for i := range widths {
			if !below[i] && !t.columns[i].Whole && widths[i] > leastColumn && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// moved returns the cells of a row that are printed below it.
func (t *Table) moved(row []cell, below []bool) string {
	var parts []string
	for i, c := range row {
		switch {
		case !below[i] || c.text == "":
		case t.columns[i].Bare:
			parts = append(parts, c.text)
		default:
			parts = append(parts, strings.ToLower(t.columns[i].Title)+": "+c.text)
		}
	}
	return strings.Join(parts, "; ")
}

// printRow writes the cells of a row, except moved ones, in as many lines as the longest needs.
func printRow(w io.Writer, row []cell, widths []int, below []bool, gap int) error {
	lines := make([][]string, len(row))
	height := 1
	for i, c := range row {
		if !below[i] {
			lines[i] = Broken(c.text, widths[i])
			height = max(height, len(lines[i]))
		}
	}
	for n := range height {
		space := 0
		for i, c := range row {
			if below[i] {
				continue
			}
			text := ""
			if n < len(lines[i]) {
				text = lines[i][n]
			}
			if text != "" {
				var shown any = Lines(text)
				if c.colour != "" {
					shown = Paint(c.colour, text)
				}
				if _, err := Fprintf(w, "%s%s", Lines(strings.Repeat(" ", space)), shown); err != nil {
					return err
				}
				space = 0
			}
			space += widths[i] - Columns(text) + gap
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
	return nil
}
