package requestlog

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// MaxLine is the maximum length of a line, in bytes. A request to a server has at most 3 MiB, and an event of an audit
// log contains its object twice.
const MaxLine = 16 << 20

// maxFiles bounds the number of files read from directories.
const maxFiles = 100_000

// sourceFiles expands paths to files. The files of a directory are sorted by name.
func sourceFiles(paths []string) ([]string, error) {
	var list []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, files.Plain(err)
		}
		first := len(list)
		if !info.IsDir() {
			if err := files.CheckArgument(path, 1<<62); err != nil {
				return nil, files.Plain(err)
			}
			list = append(list, path)
			continue
		}
		if err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.Type().IsRegular() && slices.Contains([]string{".json", ".jsonl", ".ndjson", ".log", ".yaml", ".yml"}, filepath.Ext(unrotated(name))):
				list = append(list, name)
			}
			if len(list) > maxFiles {
				return fmt.Errorf("%s has more than %d files: name fewer directories", path, maxFiles)
			}
			return nil
		}); err != nil {
			return nil, files.Plain(err)
		}
		inOrder(list[first:])
	}
	return list, nil
}

// rotated matches the suffix that logrotate adds to the name of a file.
var rotated = regexp.MustCompile(`\.(\d{1,6})$`)

// unrotated strips the suffixes added by rotation and compression from the name of a file.
func unrotated(name string) string {
	return rotated.ReplaceAllString(strings.TrimSuffix(name, ".gz"), "")
}

// inOrder sorts the files rotated by logrotate from oldest to newest: audit.log.2, audit.log.1, audit.log. Other names,
// such as audit-TIME.log of the API server, are already in order.
func inOrder(list []string) {
	age := func(name string) int {
		m := rotated.FindStringSubmatch(strings.TrimSuffix(name, ".gz"))
		if m == nil {
			return 0
		}
		// The regular expression bounds the number.
		n, _ := strconv.Atoi(m[1])
		return n
	}
	slices.SortStableFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(unrotated(a), unrotated(b)), cmp.Compare(age(b), age(a)))
	})
}

// open returns a reader of the contents of a file that may be compressed with gzip.
func open(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	magic, _ := buffered.Peek(2)
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}

// lines reads lines of a bounded length.
type lines struct {
	in *bufio.Reader
	// at is the number of the last line read.
	at  int
	buf []byte
}

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line without its line end; the slice is valid until the next call. For a line that is too long,
// ok is false and the line is skipped. The error is io.EOF after the last line, or a read error, together with the part
// of the line that was read.
func (l *lines) next() (line []byte, ok bool, err error) {
	l.buf = l.buf[:0]
	l.at++
	long := false
	for {
		part, err := l.in.ReadSlice('\n')
		if !long && len(l.buf)+len(part) > MaxLine {
			long, l.buf = true, nil
		}
		if !long {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && len(part) == 0 && len(l.buf) == 0 && !long:
			return nil, true, err
		case err != nil:
			return bytes.TrimRight(l.buf, "\r\n"), !long, err
		}
		return bytes.TrimRight(l.buf, "\r\n"), !long, nil
	}
}
