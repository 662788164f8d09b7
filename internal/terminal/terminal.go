package terminal

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Writer passes on text. Characters that are not printed but act, such as escape sequences and
// marks of direction, become what a string in Go has for them; so does a character of what a code
// host takes for a command. Ends of lines and tabs stay. It is safe for concurrent use.
type Writer struct {
	mu  sync.Mutex
	out io.Writer
	// rest are the bytes of a character that has not come as a whole.
	rest []byte
	// text is the part of the line that decides about commands.
	text state
}

// NewWriter returns a Writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Exact returns what a Writer writes to, for output that programs read; other writers are
// returned as they are.
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
	end := whole(data)
	w.rest = append(w.rest, data[end:]...)
	if _, err := w.out.Write(w.text.append(make([]byte, 0, end), data[:end])); err != nil {
		return 0, err
	}
	return given, nil
}

// Flush writes what is left when no more text comes.
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

// whole returns the length of data without a character at its end that is not complete.
func whole(data []byte) int {
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

// Line returns text as one line: ends of lines are shown, too.
func Line(text string) string {
	if !strings.ContainsAny(text, "\n\r") {
		return text
	}
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(text)
}

// state is what the line so far may become.
type state struct {
	// begun reports whether the line has more than white space; colon, that this is one colon.
	begun, colon bool
	// hashes are the number signs that came last; word is what came after two of them.
	hashes int
	word   string
}

// names are the words between two number signs and a bracket that begin a command.
var names = []string{"", "vso", "teamcity"}

func (s *state) append(out, data []byte) []byte {
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\x`+strconv.FormatUint(uint64(data[0])|0x100, 16)[1:]...)
			s.next('\\')
		case s.acts(r):
			quoted := strconv.QuoteRuneToASCII(r)
			if r < utf8.RuneSelf && unicode.IsGraphic(r) {
				quoted = `'\x` + strconv.FormatUint(uint64(r)|0x100, 16)[1:] + `'`
			}
			out = append(out, quoted[1:len(quoted)-1]...)
			s.next('\\')
		default:
			out = append(out, data[:size]...)
			s.next(r)
		}
		data = data[size:]
	}
	return out
}

// acts reports whether a character would do more than be printed.
func (s *state) acts(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\u200c', '\u200d':
		// Scripts and emoji are joined by them.
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
	return !unicode.IsGraphic(r)
}

// next takes in a character that was written.
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
