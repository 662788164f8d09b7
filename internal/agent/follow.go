package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/predict/requestlog"
)

const (
	// followEvery is how often a log file is looked at.
	followEvery = 200 * time.Millisecond
	// caughtUp is how much of a log that is there at the start is read, in bytes.
	caughtUp = 16 << 20
)

// follower reads a log file as it grows. A file that is put aside is read to its end, and then the one that takes its
// place; one that gets shorter is read from its beginning.
type follower struct {
	path string
	take func(event []byte, source string)

	file *os.File
	in   *bufio.Reader
	// read is how much of the file was read, in bytes.
	read int64
	// line is the part of a line that was read. skipping is set in a line that is left out: it is too long, or
	// its beginning was not read.
	line     []byte
	skipping bool
	// said is the trouble that the log has.
	said string
}

// run follows the file until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer func() {
		if f.file != nil {
			f.file.Close()
		}
	}()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	first := true
	for {
		err := f.advance(ctx, first)
		switch {
		case err == nil:
			f.said = ""
		case f.said != err.Error():
			f.said = err.Error()
			klog.FromContext(ctx).Error(err, "Cannot follow the audit log", "path", f.path)
		}
		first = false
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// advance reads what there is.
func (f *follower) advance(ctx context.Context, first bool) error {
	if f.file == nil {
		if err := f.open(first); err != nil {
			return err
		}
	}
	if err := f.lines(ctx); err != nil {
		return err
	}
	now, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		// It was put aside, and the next one is not there yet. Its writer may still write to it.
		return nil
	}
	if err != nil {
		return err
	}
	had, err := f.file.Stat()
	if err != nil {
		return err
	}
	switch {
	case !os.SameFile(now, had):
		// Its writer may have written to it after it was read.
		if err := f.lines(ctx); err != nil {
			return err
		}
		f.file.Close()
		f.file = nil
		return f.advance(ctx, false)
	case had.Size() < f.read:
		if _, err := f.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		f.begin(0)
		return f.lines(ctx)
	}
	return nil
}

// open opens the file. Of one that is there at the start, only the end is read.
func (f *follower) open(first bool) error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", f.path)
	}
	var at int64
	if err == nil && first {
		at = max(0, info.Size()-caughtUp)
		_, err = file.Seek(at, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return err
	}
	f.file = file
	f.begin(at)
	return nil
}

// begin reads from a place of the file on.
func (f *follower) begin(at int64) {
	f.in, f.read, f.line, f.skipping = bufio.NewReaderSize(f.file, 64<<10), at, nil, at > 0
}

// lines passes on the lines up to the end of the file. A line without its end is waited for.
func (f *follower) lines(ctx context.Context) error {
	for ctx.Err() == nil {
		part, err := f.in.ReadSlice('\n')
		f.read += int64(len(part))
		whole := err == nil
		if !f.skipping {
			if f.line = append(f.line, part...); len(f.line) > requestlog.MaxLine {
				f.line, f.skipping = nil, true
				events.WithLabelValues("unreadable").Inc()
			}
		}
		if whole {
			if !f.skipping && len(f.line) > 1 {
				f.take(f.line, f.path)
			}
			f.line, f.skipping = f.line[:0], false
			if cap(f.line) > 1<<20 {
				f.line = nil
			}
		}
		switch {
		case whole, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
	return nil
}
