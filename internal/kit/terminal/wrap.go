package terminal

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// textWidth bounds the lines of texts even on a wide terminal: longer lines are hard to read.
const textWidth = 100

// Wrapped breaks a text into lines with an indent, in the width of the page.
func (p *Page) Wrapped(text, indent string) Lines {
	most := textWidth
	if p.width > 0 {
		most = min(most, p.width)
	}
	return Wrapped(text, indent, most)
}

// Item breaks an item of a list into lines in the width of the page; without a terminal it stays one
// line.
func (p *Page) Item(text string) Lines {
	if p.width == 0 {
		return Lines("  - " + Line(text) + "\n")
	}
	return "  - " + Lines(strings.TrimLeft(string(p.Wrapped(text, "    ")), " "))
}

// Wrapped breaks a text into lines of at most some columns with an indent. Words stay whole.
func Wrapped(text, indent string, most int) Lines {
	var b strings.Builder
	line, columns := indent, len(indent)
	for _, word := range strings.Fields(text) {
		if line != indent && columns+1+Columns(word) > most {
			b.WriteString(line + "\n")
			line, columns = indent, len(indent)
		}
		if line != indent {
			line, columns = line+" ", columns+1
		}
		line, columns = line+word, columns+Columns(word)
	}
	return Lines(b.String() + line + "\n")
}

// Columns returns the width of a one-line text on a terminal, in columns.
func Columns(text string) int {
	n := 0
	for _, r := range text {
		n += columnsOf(r)
	}
	return n
}

func columnsOf(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// breaks are the characters after which a word may be broken that is too long for its column.
const breaks = "/.,:;=-_[}])"

// Cut shortens text to some columns; an ellipsis replaces the rest. 0 columns mean any number.
func Cut(text string, columns int) string {
	if columns <= 0 || Columns(text) <= columns {
		return text
	}
	n := 0
	for i, r := range text {
		if n += columnsOf(r); n >= columns {
			return text[:i] + "…"
		}
	}
	return text
}

// Broken breaks a text into lines of at most some columns: between words if possible, otherwise after a
// character that ends a part of a word.
func Broken(text string, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Split(text, " ") {
		switch {
		case line == "":
			line = word
		case Columns(line)+1+Columns(word) <= most:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
		for Columns(line) > most {
			at := breakAt(line, most)
			lines = append(lines, line[:at])
			line = line[at:]
		}
	}
	return append(lines, line)
}

// breakAt returns how many bytes of a text fit into some columns, at least one character: up to a
// character that ends a part of a word, or to where a part begins with a capital letter, unless hardly
// anything would be before it.
func breakAt(text string, most int) int {
	columns, fits, good, capital := 0, 0, 0, 0
	var before rune
	for i, r := range text {
		if unicode.IsUpper(r) && unicode.IsLower(before) && columns > most/2 {
			capital = i
		}
		if columns += columnsOf(r); columns > most && i > 0 {
			break
		}
		fits, before = i+len(string(r)), r
		if strings.ContainsRune(breaks, r) && columns > most/5 {
			good = fits
		}
	}
	switch {
	case good > 0:
		return good
	case capital > 0:
		return capital
	}
	return fits
}
