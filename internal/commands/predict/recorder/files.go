package recorder

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The parts of file names, which sort by creation time.
const (
	fileBegin  = "requests-"
	fileTime   = "20060102T150405.000Z"
	fileEnd    = ".jsonl"
	compressed = ".gz"
)

// output writes lines into files of a directory, each of a bounded size, and keeps the latest files.
type output struct {
	dir      string
	compress bool
	// maxSize is the size, in bytes, at which the next file is begun; maxFiles bounds the number of files.
	maxSize  int64
	maxFiles int
	now      func() time.Time

	file *os.File
	// size is the number of bytes written to the current file.
	size int64
	zip  *gzip.Writer
	to   *bufio.Writer
}

// open creates the directory and the first file.
func (o *output) open() error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	return o.next()
}

// Write writes to the current file and counts the bytes.
func (o *output) Write(data []byte) (int, error) {
	n, err := o.file.Write(data)
	o.size += int64(n)
	return n, err
}

// next begins another file, and removes the oldest.
func (o *output) next() error {
	if err := o.close(); err != nil {
		return err
	}
	names, err := o.names()
	if err != nil {
		return err
	}
	at := o.now().UTC()
	if len(names) > 0 {
		// Names stay in the order of requests even if the clock was set back.
		text, _, _ := strings.Cut(strings.TrimPrefix(names[len(names)-1], fileBegin), fileEnd)
		if last, err := time.Parse(fileTime, text); err == nil && !at.Truncate(time.Millisecond).After(last) {
			at = last.Add(time.Millisecond)
		}
	}
	name := fileBegin + at.Format(fileTime) + fileEnd
	if o.compress {
		name += compressed
	}
	if o.file, err = os.OpenFile(filepath.Join(o.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	o.size = 0
	if o.zip = nil; o.compress {
		o.zip = gzip.NewWriter(o)
		o.to = bufio.NewWriterSize(o.zip, 64<<10)
	} else {
		o.to = bufio.NewWriterSize(o, 64<<10)
	}
	for names = append(names, name); len(names) > o.maxFiles; names = names[1:] {
		if err := os.Remove(filepath.Join(o.dir, names[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// names returns the recorders' files in the directory, oldest first.
func (o *output) names() ([]string, error) {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), compressed)
		if e.Type().IsRegular() && strings.HasPrefix(name, fileBegin) && strings.HasSuffix(name, fileEnd) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// line writes a line, to the next file if the current one is full.
func (o *output) line(data []byte) error {
	if o.size >= o.maxSize {
		if err := o.next(); err != nil {
			return err
		}
	}
	if _, err := o.to.Write(data); err != nil {
		return err
	}
	return o.to.WriteByte('\n')
}

// flush makes all lines visible to readers.
func (o *output) flush() error {
	err := o.to.Flush()
	if o.zip != nil {
		err = errors.Join(err, o.zip.Flush())
	}
	return err
}

// close closes the current file, if there is one.
func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	err := o.to.Flush()
	if o.zip != nil {
		err = errors.Join(err, o.zip.Close())
	}
	err = errors.Join(err, o.file.Close())
	o.file = nil
	return err
}
