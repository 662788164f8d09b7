package manifests

import (
	"strings"
	"unicode/utf8"
)

// space reports whether YAML folds a byte.
func space(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// Align finds the text of a scalar in its source: the result has the offset of each byte of the
// text, or -1 for a byte that is written differently, such as a line break. line and column are the
// position of the scalar's key in the source, both from 1. Align returns nil if the source does not
// contain the text.
func Align(source string, line, column int, text string) []int {
	at := 0
	for range line - 1 {
		next := strings.IndexByte(source[at:], '\n')
		if next < 0 {
			return nil
		}
		at += next + 1
	}
	for range column - 1 {
		_, size := utf8.DecodeRuneInString(source[at:])
		at += size
	}
	colon := strings.IndexByte(source[at:], ':')
	if colon < 0 || text == "" {
		return nil
	}
	s := &scalar{source: source, at: at + colon + 1}
	s.open()
	places := make([]int, len(text))
	for i := 0; i < len(text); {
		if space(text[i]) {
			// White space is folded: any run of it matches any other.
			for ; i < len(text) && space(text[i]); i++ {
				places[i] = -1
				if s.at < len(source) && source[s.at] == text[i] && text[i] != '\n' {
					places[i] = s.at
					s.at++
				}
			}
			s.skip()
			continue
		}
		s.skip()
		if places[i] = s.next(text[i]); places[i] < 0 {
			return nil
		}
		i++
	}
	return places
}

// scalar is a position in a YAML scalar. quote is its quotation mark, or 0.
type scalar struct {
	source string
	at     int
	quote  byte
}

// open moves to the first byte of the value.
func (s *scalar) open() {
	s.skip()
	if s.at >= len(s.source) {
		return
	}
	switch c := s.source[s.at]; c {
	case '|', '>':
		for s.at < len(s.source) && s.source[s.at] != '\n' {
			s.at++
		}
	case '"', '\'':
		s.quote = c
		s.at++
	}
}

// skip moves over white space, and over escaped line breaks in double quotes.
func (s *scalar) skip() {
	for s.at < len(s.source) {
		switch rest := s.source[s.at:]; {
		case space(rest[0]):
			s.at++
		case s.quote == '"' && (strings.HasPrefix(rest, `\n`) || strings.HasPrefix(rest, "\\\n")):
			s.at += 2
		default:
			return
		}
	}
}

// next moves over byte c, and returns its offset; -1 if the next byte is another one.
func (s *scalar) next(c byte) int {
	rest, place := s.source[min(s.at, len(s.source)):], s.at
	switch {
	case rest == "":
		return -1
	case s.quote == '\'' && c == '\'' && strings.HasPrefix(rest, "''"):
		s.at += 2
	case s.quote == '"' && len(rest) > 1 && rest[0] == '\\' && rest[1] == c:
		place++
		s.at += 2
	case rest[0] == c:
		s.at++
	default:
		return -1
	}
	return place
}
