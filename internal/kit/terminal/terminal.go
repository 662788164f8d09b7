package terminal

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Writer copies text to another writer. Control characters, such as escape sequences and changes of
// the text direction, are escaped as in Go strings; so is one character of a line that a code host
// treats as a command. Line ends and tabs stay. It is safe for concurrent use.
type Writer struct {
	mu  sync.Mutex
	out io.Writer
	// rest are the bytes of an incomplete character.
	rest []byte
	// text is the state of the current line for the detection of commands.
	text state
}

// NewWriter returns a Writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Exact returns the underlying writer of a Writer, for output that programs read; it returns other
// writers unchanged.
func Exact(w io.Writer) io.Writer {
	if own, ok := w.(*Writer); ok {
		return own.out
	}
	return w
}

// Write implements io.Writer.
func (w *Writer) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	given := len(data)
	if len(w.rest) > 0 {
		data = append(w.rest, data...)
		w.rest = nil
	}
	end := completeLen(data)
	w.rest = append(w.rest, data[end:]...)
	if _, err := w.out.Write(w.text.append(make([]byte, 0, end), data[:end])); err != nil {
		return 0, err
	}
	return given, nil
}

// Flush writes the remaining bytes after the last Write.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) == 0 {
		return nil
	}
	_, err := w.out.Write(w.text.append(nil, w.rest))
	w.rest = nil
	return err
}

// completeLen returns the length of data without an incomplete character at its end.
func completeLen(data []byte) int {
	for i := len(data) - 1; i >= 0 && i >= len(data)-utf8.UTFMax; i-- {
		if utf8.RuneStart(data[i]) {
			if utf8.FullRune(data[i:]) {
				return len(data)
			}
			return i
		}
	}
	return len(data)
}

// Line returns text as one line: line ends, tabs and control characters are escaped.
func Line(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if text[i] != '\n' && text[i] != '\t' && (r != utf8.RuneError || size > 1) && !hidden(r) {
			b.WriteString(text[i : i+size])
		} else {
			b.Write(quoted(nil, r, text[i:i+size]))
		}
		i += size
	}
	return b.String()
}

// Lines is text that may be printed on several lines.
type Lines string

// Indented returns text whose lines after the first one are indented, so that they cannot imitate
// lines of the program itself.
func Indented(text, indent string) Lines {
	return Lines(strings.ReplaceAll(text, "\n", "\n"+indent))
}

// Fprintf is fmt.Fprintf for people: each argument that is text, an error or has a String method is
// printed as one Line, unless its type is Lines.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	safe := make([]any, len(args))
	paints := false
	for i, arg := range args {
		switch v := arg.(type) {
		case Painted:
			safe[i], paints = paint(v), true
		case Lines:
			safe[i] = unmarked.Replace(string(v))
		case error:
			safe[i] = line(v.Error())
		case fmt.Stringer:
			safe[i] = line(v.String())
		default:
			safe[i] = arg
			if v := reflect.ValueOf(arg); v.Kind() == reflect.String {
				safe[i] = line(v.String())
			}
		}
	}
	if paints {
		return writeMarked(w, fmt.Sprintf(format, safe...))
	}
	return fmt.Fprintf(w, format, safe...)
}

// paint is a Painted that is formatted with marks.
type paint Painted

// Format implements fmt.Formatter.
func (p paint) Format(f fmt.State, verb rune) {
	io.WriteString(f, marked(p.colour, fmt.Sprintf(fmt.FormatString(f, verb), line(p.text))))
}

// line is text that is printed as one Line. With %q it is quoted as usual.
type line string

// Format implements fmt.Formatter.
func (l line) Format(f fmt.State, verb rune) {
	text := string(l)
	if verb != 'q' {
		text = Line(text)
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}

// state is the state of the detection of commands in a line.
type state struct {
	// begun is set if the line has more than white space; colon, if that is one colon.
	begun, colon bool
	// hashes counts the most recent number signs; word is the text after two of them.
	hashes int
	word   string
}

// names are the words between two number signs and a bracket that begin a command.
var names = []string{"", "vso", "teamcity"}

func (s *state) append(out, data []byte) []byte {
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1, s.acts(r):
			out = quoted(out, r, string(data[:size]))
			s.next('\\')
		default:
			out = append(out, data[:size]...)
			s.next(r)
		}
		data = data[size:]
	}
	return out
}

// quoted appends the escape sequence that a Go string has for a character, given as text.
func quoted(out []byte, r rune, text string) []byte {
	if len(text) == 1 && (r == utf8.RuneError || unicode.IsGraphic(r)) {
		return append(out, `\x`+strconv.FormatUint(uint64(text[0])|0x100, 16)[1:]...)
	}
	as := strconv.QuoteRuneToASCII(r)
	return append(out, as[1:len(as)-1]...)
}

// hidden reports whether a character is invisible.
func hidden(r rune) bool {
	// Two invisible characters join scripts and emoji.
	return !unicode.IsGraphic(r) && r != '\u200c' && r != '\u200d'
}

// acts reports whether a character would have another effect than being printed.
func (s *state) acts(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case ':':
		return s.colon
	case '[':
		if s.hashes < 2 {
			return false
		}
		for _, name := range names {
			if strings.EqualFold(s.word, name) {
				return true
			}
		}
	}
	return hidden(r)
}

// next updates the state with a written character.
func (s *state) next(r rune) {
	if r == '\n' {
		*s = state{}
		return
	}
	s.colon = r == ':' && !s.begun
	s.begun = s.begun || !unicode.IsSpace(r)
	switch {
	case r == '#' && s.word == "":
		s.hashes++
	case r == '#':
		s.hashes, s.word = 1, ""
	case s.hashes >= 2 && unicode.IsLetter(r) && len(s.word) < 16:
		s.word += string(r)
	default:
		s.hashes, s.word = 0, ""
	}
}
