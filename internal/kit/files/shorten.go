package files

import (
	"fmt"
	"strings"
)

// longest bounds an error about the content of a file, in bytes. Errors of decoders may quote any
// length of the file.
const longest = 4 << 10

// Shorten shortens an error about the content of a file. It keeps the beginning, which has the
// place, and the end, which has the reason.
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
