package terminal

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// Page collects what a command prints for people. It knows the terminal that it is for: how wide
// it is, and whether it has colours. Like a Writer, it shows what would act; only Painted
// arguments of Fprintf have colours.
type Page struct {
	out    io.Writer
	width  int
	colour bool

	text   bytes.Buffer
	writer *Writer
}

// columnsVariable is the environment variable that says how wide output is that goes to no
// terminal.
const columnsVariable = "COLUMNS"

// narrowest is the least width that is respected.
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

// Width is how many columns a line may have; 0 means any number.
func (p *Page) Width() int { return p.width }

// Write implements io.Writer. It returns no error.
func (p *Page) Write(data []byte) (int, error) { return p.writer.Write(data) }

// Flush writes what was collected.
func (p *Page) Flush() error {
	if err := p.writer.Flush(); err != nil {
		return err
	}
	_, err := p.out.Write(p.text.Bytes())
	p.text.Reset()
	return err
}

// Colour is how text stands out.
type Colour string

// The colours, as terminals are asked for them.
const (
	Red    Colour = "31"
	Yellow Colour = "33"
	Green  Colour = "32"
	Cyan   Colour = "36"
	Bold   Colour = "1"
	Faint  Colour = "2"
)

// Painted is text that has a colour on a Page for a terminal, and none elsewhere.
type Painted struct {
	colour Colour
	text   string
}

// Paint gives text a colour. Like other arguments of Fprintf, the text is one line.
func Paint(c Colour, text string) Painted { return Painted{c, text} }

// String returns the text.
func (p Painted) String() string { return p.text }

// The marks around painted text while Fprintf formats. Neither is a character, and Line shows
// them in texts of others.
const (
	paintMark = "\ufdd0"
	plainMark = "\ufdd1"
)

// unmarked shows marks in text that is not painted.
var unmarked = strings.NewReplacer(paintMark, `\ufdd0`, plainMark, `\ufdd1`)

// marked returns painted text between marks.
func marked(c Colour, text string) string { return paintMark + string(c) + "m" + text + plainMark }

// writeMarked writes text with marks: as colours to a page that has them, else without.
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
