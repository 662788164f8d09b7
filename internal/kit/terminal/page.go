package terminal

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// Page collects the output of a command for people. It knows the width of the terminal and whether
// the terminal supports colours. Like a Writer, it makes control characters visible; only Painted
// arguments of Fprintf have colours.
type Page struct {
	out    io.Writer
	width  int
	colour bool

	text   bytes.Buffer
	writer *Writer
}

// columnsVariable is the environment variable with the width of output that does not go to a
// terminal.
const columnsVariable = "COLUMNS"

// narrowest is the minimum width.
const narrowest = 40

// NewPage returns a page that Flush writes to out.
func NewPage(out io.Writer) *Page {
	p := &Page{out: Exact(out)}
	p.writer = NewWriter(&p.text)
	if n, err := strconv.Atoi(os.Getenv(columnsVariable)); err == nil && n > 0 {
		p.width = max(n, narrowest)
	}
	file, ok := p.out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return p
	}
	p.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		p.width = max(width, narrowest)
	}
	return p
}

// Width returns the number of columns of a line; 0 means any number.
func (p *Page) Width() int { return p.width }

// Write implements io.Writer. It returns no error.
func (p *Page) Write(data []byte) (int, error) { return p.writer.Write(data) }

// Flush writes the collected output.
func (p *Page) Flush() error {
	if err := p.writer.Flush(); err != nil {
		return err
	}
	_, err := p.out.Write(p.text.Bytes())
	p.text.Reset()
	return err
}

// Colour is a colour of text.
type Colour string

// The colours, as parameters of escape sequences.
const (
	Red    Colour = "31"
	Yellow Colour = "33"
	Green  Colour = "32"
	Cyan   Colour = "36"
	Bold   Colour = "1"
	Faint  Colour = "2"
)

// Painted is text with a colour on a Page for a terminal, and without elsewhere.
type Painted struct {
	colour Colour
	text   string
}

// Paint gives text a colour. Like other arguments of Fprintf, the text is printed as one line.
func Paint(c Colour, text string) Painted { return Painted{c, text} }

// String returns the text without its colour.
func (p Painted) String() string { return p.text }

// The marks around painted text while Fprintf formats. Both are noncharacters, and Line makes them
// visible in other texts.
const (
	paintMark = "\ufdd0"
	plainMark = "\ufdd1"
)

// unmarked makes marks visible in text that is not painted.
var unmarked = strings.NewReplacer(paintMark, `\ufdd0`, plainMark, `\ufdd1`)

// marked returns painted text between marks.
func marked(c Colour, text string) string { return paintMark + string(c) + "m" + text + plainMark }

// writeMarked writes text with marks: as colours to a page that supports them, otherwise without.
func writeMarked(w io.Writer, text string) (int, error) {
	page, _ := w.(*Page)
	n := 0
	write := func(text string) error {
		some, err := io.WriteString(w, text)
		n += some
		return err
	}
	for text != "" {
		plain, rest, found := strings.Cut(text, paintMark)
		if err := write(plain); err != nil || !found {
			return n, err
		}
		colour, rest, _ := strings.Cut(rest, "m")
		painted, rest, _ := strings.Cut(rest, plainMark)
		colours := page != nil && page.colour && painted != ""
		if colours {
			page.text.WriteString("\x1b[" + colour + "m")
		}
		if err := write(painted); err != nil {
			return n, err
		}
		if colours {
			page.text.WriteString("\x1b[0m")
		}
		text = rest
	}
	return n, nil
}
