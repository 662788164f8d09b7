package files

import (
	"fmt"
	"strings"
)

// longest is the length of the longest error about what a file says, in bytes. Errors of
// decoders quote as much of the file as they like.
const longest = 4 << 10

// Shorten bounds the text of an error about the content of a file. The beginning, which says
// where, and the end, which says what, stay.
func Shorten(err error) error {
	if err == nil || len(err.Error()) <= longest {
		return err
	}
	return shortened{err}
}

type shortened struct{ error }

// Error implements error.
func (s shortened) Error() string {
	text := s.error.Error()
	const half = longest / 2
	begin, end := text[:half], text[len(text)-half:]
	return fmt.Sprintf("%s ... (%d bytes left out) ... %s", strings.ToValidUTF8(begin, ""), len(text)-2*half, strings.ToValidUTF8(end, ""))
}

func (s shortened) Unwrap() error { return s.error }
